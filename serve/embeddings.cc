#include "serve/embeddings.h"

#include <bit>
#include <utility>
#include <vector>

#include "session/unit_vector.h"
#include "support/json_text.h"

namespace forge::serve {
namespace {

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
        base64_(spec.base64),
        width_(spec.dimensions == 0 ? model.engine().executor().hidden_width() : spec.dimensions),
        batch_(model, std::move(spec.inputs), std::move(wake)) {}

  Part poll() override {
    if (!batch_.poll()) return {};
    if (batch_.failure()) return {.head = error_response(*batch_.failure()), .done = true};
    return {.head = response(), .done = true};
  }

 private:
  [[nodiscard]] Response response() const {
    JsonWriter json(JsonLayout::kCompact);
    json.open('{').field("object", "list").open("data", '[');
    for (std::size_t i = 0; i < batch_.rows().size(); ++i) {
      const auto vector = session::unit_vector(batch_.rows()[i], width_);
      if (!vector) return error_response(no_number());
      json.open('{').field("object", "embedding").field("index", i);
      if (base64_)
        json.field("embedding", std::string_view(little_endian(*vector)));
      else
        json.field("embedding", std::span<const float>(*vector));
      json.close();
    }
    json.close().field("model", model_.name()).open("usage", '{');
    json.field("prompt_tokens", batch_.tokens()).field("total_tokens", batch_.tokens());
    return {.body = json.close().close().take()};
  }

  ServedModel& model_;
  bool base64_;
  std::size_t width_;
  RowBatch batch_;
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
