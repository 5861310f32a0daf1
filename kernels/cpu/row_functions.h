#pragma once
// Functions of whole rows that few models have: match_rms and gaussian_topk (ir/op.h). Plain code that compilers
// vectorise, the same for all CPU classes: a row costs little beside the matmuls of its layer.

#include "kernels/cpu/tile.h"

namespace forge::cpu {

/// out = x scaled row by row to the length (2-norm) of the rows of `like`; a row of zeros stays one. x, like and out
/// have the same shape; out may be x or like.
void match_rms(ConstTile x, ConstTile like, Tile out);

/// out = max(0, x - mean - cutoff * deviation) of each row, with the standard deviation of width - 1; at least 2
/// columns. out may be x. Activation sparsity of Gemma 3n.
void gaussian_topk(ConstTile x, float cutoff, Tile out);

}  // namespace forge::cpu
