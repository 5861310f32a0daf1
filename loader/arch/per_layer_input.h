#pragma once
// Per-layer inputs of Gemma 3n and Gemma 4: every layer gets a small vector of its own for each token, from a second
// embedding table and from a projection of the token's embedding. Source: the models' code; docs of Gemma 3n.

#include <cstdint>
#include <vector>

#include "loader/arch/blocks.h"

namespace forge::loader {

/// The inputs of all layers, [T, P] each with P = <family>.embedding_length_per_layer_input; empty if P is 0 or absent.
/// embedding: [T, width], scaled by sqrt(width). With L layers the tensors are
///   per_layer_token_embd   [vocab, L * P]   scaled by sqrt(P)
///   per_layer_model_proj   [L * P, width]   of the embedding, divided by sqrt(width), then RMSNorm over each P
///   per_layer_proj_norm    [P]
/// and an input is the sum of both, divided by sqrt(2).
std::vector<ir::Value> per_layer_inputs(DecoderBuilder& model, ir::Value embedding);

/// What a layer computes from its input `own` [T, P] and x [T, width]: RMSNorm(proj(GELU(inp_gate(x)) * own)), to be
/// added to the residual stream. Tensors inp_gate [P, width], proj [width, P] and post_norm [width] of the layer.
ir::Value per_layer_block(DecoderBuilder& model, ir::Value x, ir::Value own, std::int64_t layer);

}  // namespace forge::loader
