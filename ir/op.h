#pragma once
// The op set and its table. Each op is defined once, in a file of ir/ops/: name, number of operands, kind of
// attributes, shape rule, whether it may work in place, bytes and FLOPs, scalar reference. Graph::add and the verifier
// run the shape rule, passes and back-ends read the properties, the interpreter runs the reference.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/type.h"

namespace forge::ir {

/// Columns in one partial sum of sum_squares: result [m, b] is the sum of x[m, j]^2 for j in [16 b, 16 b + 16).
inline constexpr std::int64_t kSumSquaresBlock = 16;

/// Columns that hadamard transforms together.
inline constexpr std::int64_t kHadamardColumns = 32;

/// All ops, as (operands) -> results; [operands] in brackets are optional. Dimensions: M rows, N and K columns, T
/// tokens, R rows of logits, E experts, U experts a token, H heads or batches, G runs of `dim` columns, W columns of a
/// head, V rows of a table, D its columns, C channels, B sequences. A state is a cache that ops update; it has no
/// shape. Weights are [N,K]: row n has the K factors of output column n.
#define FORGE_OP(name, Name, ...) k##Name,
enum class Op : std::uint8_t {
  kInput,           // () -> i32 step input, or f32 [T,D] for embeddings
  kWeight,          // () -> a tensor of the model file
  kConstant,        // () -> f32
  kKvState,         // () -> state: KV cache, which grows with the sequence in blocks
  kRecurrentState,  // () -> state of a fixed size a sequence
  kEmbed,           // (table [V,D], ids [T]) -> f32 [T,D]
  kRmsNorm,         // (x [M,G*dim], weight [dim]) -> f32: each run of dim columns x / sqrt(mean(x^2) + eps) * weight
  kLayerNorm,       // (x [M,G*dim], weight [dim] or [G,dim], [bias, shaped as weight]) -> f32: each run of dim columns
                    // (x - mean) / sqrt(var + eps) * weight + bias
  kSumSquares,      // (x [M,N]) -> f32 [M, ceil(N/16)]: sums of x^2 over blocks of kSumSquaresBlock = 16 columns
  kInvRmsScale,     // (x [M,N] or [M,U,N], squares [M,ceil(dim/16)]) -> f32: x / sqrt(sum(squares)/dim + eps), with the
                    // attributes dim and eps
  kMatchRms,  // (x [M,N], like [M,N]) -> f32: each row x * |like| / |x|, the lengths being 2-norms; zeros stay zeros
  kGaussianTopk,   // (x [M,N]) -> f32: each row max(0, x - mean - cutoff * deviation), deviation with N - 1 (activation
                   // sparsity of Gemma 3n)
  kQuantize,       // (x f32 [M,N] or [M,U,N]) -> the same shape in the attribute's type of quantised activations
  kMatmul,         // (x [M,K] f32 or quantised, weight [N,K]) -> f32 [M,N]: x . weight^T
  kBatchedMatmul,  // (x [M,H,K] f32 or quantised, weight [H,N,K]) -> f32 [M,H*N]: x[m,h] . weight[h]^T
  kConcatRows,  // (weights [Ni,K]...) -> [sum Ni, K]: one weight made of several at load time; also [Ni] and [E,Ni,K]
  kSliceRows,   // (weight [N,K], [N] or [E,N,K]) -> a range of its rows, or of each expert's; selected at load time
  kSplit,       // (x [M,N] or [M,U,N]) -> one result a part: columns of x (PartsAttrs)
  kArrange,     // (x [M,N] or [M,U,N]...) -> f32 [M,H*W] or [M,H,W]: columns selected head by head (ArrangeAttrs)
  kGlu,         // (gate, up) -> f32: act(gate) * up
  kActivate,    // (x) -> f32: act(x)
  kRopeFreqs,   // ([factors [dims/2], [factors for long contexts [dims/2]]]) -> f32 [dims/2]
  kRopeTable,   // (positions [T], freqs [F]) -> f32 [T,F,2]: cos and sin
  kRope,        // (x [T,heads*head_dim], table [T,rotary_dims/2,2]) -> f32 as x
  kHadamard,    // (x [M,N]) -> f32 [M,N]: runs of kHadamardColumns = 32 columns times the Hadamard matrix / sqrt(32)
  kKvStore,     // (state, k [T,kv_heads*head_dim], [v [T,kv_heads*value_dim]], positions, sequence, block_table) ->
                // state; only k where the state has shared rows, and only k or v if it stores one half
  kAttention,   // (q [T,heads*head_dim], state, positions, sequence, block_table, kv_length, [sinks [heads]], [selected
                // i32 [T,S*selected]]) -> f32 [T,heads*value_dim]; S is 1 or kv_heads
  kSelectKeys,  // (q [T,heads*head_dim], state, positions, sequence, block_table, kv_length, [weights [T,heads]]) ->
                // i32 [T,S*top_k]: the keys that take part in attention; S is 1 with weights, else heads
  kSelfAttention,  // (q [T,heads*head_dim], k, v [T,kv_heads*head_dim], sequence [T]) -> f32 [T,heads*head_dim]
  kGatherRows,     // (x [T,N], rows [R]) -> f32 [R,N]
  kRoute,  // (logits [M,E], [bias [E], [factors [E]]]) -> i32 [M,U], f32 [M,U]: each row's experts, best first, and
           // routing weights
  kExpertMatmul,  // (x [M,K] or [M,U,K], weight [E,N,K], experts [M,U]) -> f32 [M,U,N]: x by the chosen experts'
                  // weights
  kExpertAdd,     // (x [M,U,N], bias [E,N,1], experts [M,U]) -> f32 [M,U,N]: x plus the chosen experts' biases
  kExpertScale,   // (x [M,U,N], factors [E], experts [M,U]) -> f32 [M,U,N]: x times the chosen experts' factors
  kExpertSum,     // (x [M,U,N], shares [M,U]) -> f32 [M,N]: sum over U of routing weight * x
  // Ops with recurrent state: the last operands are (state, sequence [T], state_read [B], state_write [B]), the last
  // result is the state after this layer.
  kShortConv,      // (x [T,C], kernel [C,K], [bias [C]], ...) -> f32 [T,C], state
  kDeltaRule,      // (q, k [T,key_heads*key_dim], v [T,heads*value_dim], log decay [T,heads] or [T,heads*key_dim], beta
                   // [T,heads], ...) -> f32 [T,heads*value_dim], state
  kSelectiveScan,  // (x [T,heads*head_dim], dt [T,heads], a [heads,state_dim] or [heads], b, c [T,groups*state_dim], d
                   // [heads], ...) -> f32 [T,heads*head_dim], state
  kRwkv7,          // (r, w, k, v, a, b, all [T,heads*head_dim], ...) -> f32 [T,heads*head_dim], state
  // One op for each row of kernels/elementwise/elementwise.h: (x) -> f32: f(x), or (a [M,N], b [M,N] or [N]) -> f32:
  // f(a, b), where a vector b applies to every row; b [1] applies to every element
  FORGE_ELEMENTWISE_FUNCTIONS(FORGE_OP, FORGE_NO_ROW)  //
  kCount_,
};
#undef FORGE_OP

/// Bytes and FLOPs of one execution under given bounds. Weights are counted in their stored (quantised) type.
struct Cost {
  std::int64_t weight_bytes = 0;      ///< weight bytes read; an embedding counts only the rows that it reads
  std::int64_t activation_bytes = 0;  ///< operands read and results written
  std::int64_t flops = 0;
};

struct Tensor;       // interpreter.h
struct EvalContext;  // interpreter.h

/// Definition of one op: one row of the op table.
struct OpDef {
  Op op{};
  std::string_view name;                            ///< in the text form
  std::uint8_t operands_min = 0, operands_max = 0;  ///< operands_max 255: no upper limit
  std::size_t attrs_index = 0;                      ///< alternative of Attrs that this op has
  bool has_effect = false;   ///< writes a state: must not be duplicated, nor removed while its state is used
  bool elementwise = false;  ///< result element (i,j) depends on operand elements (i,j) only; vectors broadcast
  std::int8_t in_place_operand = -1;              ///< the result may overwrite this operand's buffer; -1: none
  std::optional<elementwise::Function> function;  ///< set if the op is a row of kernels/elementwise
  /// The shape rule: result types from attributes and operand types. Throws Error(kInternal) that names the op, the
  /// operand and both shapes.
  std::vector<TensorType> (*infer)(const Attrs&, std::span<const TensorType>){};
  Cost (*cost)(const Attrs&, std::span<const TensorType> operands, std::span<const TensorType> results,
               const Bounds&){};
  /// Computes the results from the operands, in f32 with f64 sums; nullptr for sources. `results` have their final
  /// size.
  void (*reference)(const Attrs&, std::span<const Tensor* const> operands, std::span<Tensor> results, EvalContext&){};
};

const OpDef& op_def(Op op);
/// Result types of `op`. Checks the kind of attributes and the number of operands, runs the shape rule, and limits the
/// results: rank at most 4, at most 2^40 elements in the constant dimensions, rows of whole quantisation blocks. Safe
/// for hostile attributes. Throws Error(kInternal).
std::vector<TensorType> infer_types(Op op, const Attrs& attrs, std::span<const TensorType> operands);
/// The function that an elementwise op, glu or activate applies to each element.
struct FunctionCall {
  elementwise::Function function{};
  elementwise::Parameters parameters{};
};
/// nullopt for all other ops.
std::optional<FunctionCall> function_call(Op op, const Attrs& attrs);
/// Operands that every op with recurrent state ends with: state, sequence, state_read, state_write.
inline constexpr std::size_t kStateOperands = 4;
/// What an op with recurrent state keeps: the layer of its recurrent group, and the floats of one sequence there.
struct RecurrentUse {
  std::int64_t layer = 0, floats = 0;
};
/// nullopt for all other ops.
std::optional<RecurrentUse> recurrent_use(Op op, const Attrs& attrs, std::span<const TensorType> operands);
/// The op of this name in the text form; nullptr if there is none.
const OpDef* find_op(std::string_view name);

}  // namespace forge::ir
