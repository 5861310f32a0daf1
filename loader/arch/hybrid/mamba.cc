// mamba, mamba2: selective state space models without attention and without FFNs. mamba also serves Falcon-Mamba.
// Sources: arXiv 2312.00752, 2405.21060.

#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

template <class Mixer>
PortableModel build(DecoderBuilder& model) {
  Mixer mixer(model);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.residual(x, mixer(model.norm(x, model.at(layer, "attn_norm")), layer));
  }));
}

}  // namespace

PortableModel build_mamba(const Gguf& file) {
  DecoderBuilder model(file);
  return model.family() == "mamba2" ? build<Mamba2>(model) : build<Mamba>(model);
}

}  // namespace forge::loader
