#include "serve/protocol/answers.h"

#include <utility>

#include "serve/protocol/api_error.h"

namespace forge::serve {
namespace {

bool has_failed(const Piece& piece) {
  return piece.finish == engine::FinishReason::kError || piece.finish == engine::FinishReason::kDeadline;
}

std::string event_of(const std::string& json) {
  return json.empty() ? std::string() : "data: " + json + "\n\n";
}

class WholeAnswer final : public Answer {
 public:
  WholeAnswer(std::unique_ptr<Registry::Ticket> ticket, std::unique_ptr<Dialect> dialect)
      : ticket_(std::move(ticket)), dialect_(std::move(dialect)), choices_(ticket_->generation().choices()) {}

  Part poll() override {
    auto& generation = ticket_->generation();
    while (auto piece = generation.next()) {
      if (has_failed(*piece)) return {.head = error_response(error_of(piece->finish, piece->error)), .done = true};
      auto& choice = choices_[piece->choice];
      choice.text += piece->text;
      choice.answer.add(piece->answer);
      choice.finish = piece->finish;
      if (piece->token >= 0) choice.tokens.push_back(*std::move(piece));
    }
    if (!generation.ended()) return {};
    return {.head = Response{.body = dialect_->whole(choices_, generation.totals())}, .done = true};
  }

 private:
  std::unique_ptr<Registry::Ticket> ticket_;
  std::unique_ptr<Dialect> dialect_;
  std::vector<Choice> choices_;
};

class StreamAnswer final : public Answer {
 public:
  StreamAnswer(std::unique_ptr<Registry::Ticket> ticket, std::unique_ptr<Dialect> dialect)
      : ticket_(std::move(ticket)), dialect_(std::move(dialect)) {}

  Part poll() override {
    auto& generation = ticket_->generation();
    Part part;
    if (!std::exchange(begun_, true)) {
      part.head = Response{.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}};
      for (std::size_t i = 0; i < generation.choices(); ++i) part.data += event_of(dialect_->first(i));
    }
    while (auto piece = generation.next()) {
      if (has_failed(*piece)) {
        part.data += event_of(error_json(error_of(piece->finish, piece->error)));
        return end(std::move(part));
      }
      for (const auto& event : dialect_->chunks(*piece)) part.data += event_of(event);
    }
    if (!generation.ended()) return part;
    part.data += event_of(dialect_->last(generation.totals()));
    return end(std::move(part));
  }
  [[nodiscard]] std::string_view ping() const override { return ": ping\n\n"; }

 private:
  Part end(Part part) {
    if (dialect_->says_done()) part.data += "data: [DONE]\n\n";
    part.done = true;
    return part;
  }

  std::unique_ptr<Registry::Ticket> ticket_;
  std::unique_ptr<Dialect> dialect_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<Answer> whole_answer(std::unique_ptr<Registry::Ticket> ticket, std::unique_ptr<Dialect> dialect) {
  return std::make_unique<WholeAnswer>(std::move(ticket), std::move(dialect));
}

std::unique_ptr<Answer> stream_answer(std::unique_ptr<Registry::Ticket> ticket, std::unique_ptr<Dialect> dialect) {
  return std::make_unique<StreamAnswer>(std::move(ticket), std::move(dialect));
}

}  // namespace forge::serve
