#include "serve/embeddings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "serve/generation.h"
#include "support/json_text.h"

namespace forge::serve {
namespace {

constexpr std::size_t kInFlightMax = 16;  ///< inputs of one HTTP request that are in the engine at the same time

/// The first `count` columns of `row`, normalised to length 1; nullopt if their norm is zero, NaN or infinite.
std::optional<std::vector<float>> unit_vector(std::vector<float> row, std::size_t count) {
  row.resize(count);
  double square = 0;
  for (const double value : row) square += value * value;
  if (!(square > 0) || !std::isfinite(square)) return std::nullopt;
  const double scale = 1 / std::sqrt(square);
  for (auto& value : row) value = static_cast<float>(value * scale);
  return row;
}

std::string little_endian(std::span<const float> values) {
  std::vector<unsigned char> bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const auto value : values)
    for (unsigned shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<unsigned char>(std::bit_cast<std::uint32_t>(value) >> shift));
  return base64(bytes);
}

class EmbeddingsAnswer final : public Answer {
 public:
  EmbeddingsAnswer(ServedModel& model, EmbeddingsSpec spec, Wake wake)
      : model_(model),
        spec_(std::move(spec)),
        wake_(std::move(wake)),
        deadline_(Clock::now() + spec_.timeout),
        width_(spec_.dimensions == 0 ? model.engine().executor().hidden_width() : spec_.dimensions),
        vectors_(spec_.inputs.size()) {
    for (const auto& input : spec_.inputs) tokens_ += input.size();
    submit();
  }

  Part poll() override {
    for (auto& running : running_)
      while (auto event = running.handle.next(engine::Time::zero()))
        if (event->finish != engine::FinishReason::kNone) take(running, *std::move(event));
    std::erase_if(running_, [](const auto& running) { return running.done; });
    if (!failure_) submit();
    if (failure_) return {.head = error_response(*failure_), .done = true};
    if (done_ < vectors_.size()) return {};
    return {.head = Response{.body = body()}, .done = true};
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::size_t input = 0;
    engine::RequestHandle handle;
    bool done = false;
  };

  void submit() {
    for (; next_ < spec_.inputs.size() && running_.size() < kInFlightMax; ++next_) {
      engine::Request request{.prompt = std::move(spec_.inputs[next_]), .wants = *model_.pooling()};
      request.timeout = std::max<engine::Time>(deadline_ - Clock::now(), engine::Time::zero());
      request.on_event = wake_;
      auto handle = model_.engine().submit(std::move(request));
      if (!handle) {
        failure_ = error_of(handle.error(), retry_after_s(model_.engine().status()), "input");
        running_.clear();
        return;
      }
      running_.push_back({.input = next_, .handle = *std::move(handle)});
    }
  }

  void take(Running& running, engine::StreamEvent event) {
    running.done = true;
    ++done_;
    if (event.finish != engine::FinishReason::kStop) {
      failure_ = error_of(event.finish, event.error);
      return;
    }
    auto vector = unit_vector(std::move(event.row), width_);
    if (!vector) {
      failure_ = ApiError{.status = 503,
                          .code = "no_number",
                          .message = "the model's hidden states are NaN, infinite or all zero",
                          .category = ErrorCategory::kDevice};
      return;
    }
    vectors_[running.input] = *std::move(vector);
  }

  [[nodiscard]] std::string body() const {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("object", "list").open("data", '[');
    for (std::size_t i = 0; i < vectors_.size(); ++i) {
      json.open('{').field("object", "embedding").field("index", i);
      if (spec_.base64)
        json.field("embedding", std::string_view(little_endian(vectors_[i])));
      else
        json.field("embedding", std::span(vectors_[i]));
      json.close();
    }
    json.close().field("model", model_.name()).open("usage", '{');
    return json.field("prompt_tokens", tokens_).field("total_tokens", tokens_).close().close().take();
  }

  ServedModel& model_;
  EmbeddingsSpec spec_;
  Wake wake_;
  Clock::time_point deadline_;
  std::size_t width_ = 0, tokens_ = 0, next_ = 0, done_ = 0;
  std::vector<std::vector<float>> vectors_;  ///< [inputs][width]
  std::vector<Running> running_;
  std::optional<ApiError> failure_;
};

}  // namespace

std::string base64(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::unique_ptr<Answer> embeddings_answer(ServedModel& model, EmbeddingsSpec spec, Wake wake) {
  return std::make_unique<EmbeddingsAnswer>(model, std::move(spec), std::move(wake));
}

}  // namespace forge::serve
