#pragma once
// The op table: one definition an op, in one place (ops_*.cc): name, operands, attributes, shape rule, what may be
// done in place, bytes and FLOPs, scalar reference. The verifier re-runs the shape rule; the interpreter runs the
// reference.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/type.h"

namespace forge::ir {

/// Columns that one of sum_squares' partial sums is over.
inline constexpr std::int64_t kSquareBlock = 16;

#define FORGE_OP(name, Name, ...) k##Name,
enum class Op : std::uint8_t {
  kInput,           // -> i32 step input, or f32 [T,D] for embeddings
  kWeight,          // -> a tensor of the model file
  kConstant,        // -> f32
  kKvState,         // -> state: grows with the sequence, in blocks
  kRecurrentState,  // -> state: of a fixed size a sequence
  kEmbed,           // (table [V,D], ids [T]) -> f32 [T,D]
  kRmsNorm,         // (x [M,G*dim], weight [dim]) -> f32: each run of dim columns x / sqrt(mean(x^2) + eps) * weight
  kLayerNorm,    // (x [M,G*dim], weight [dim] or [G,dim], [bias alike]) -> f32: (x - mean) / sqrt(var + eps) * weight +
                 // bias
  kSumSquares,   // (x [M,N]) -> f32 [M, ceil(N/16)]: sums over blocks of kSquareBlock columns
  kInvRmsScale,  // (x [M,N], squares [M,ceil(dim/16)]) -> f32: x / sqrt(sum(squares)/dim + eps), dim of the attributes
  kQuantize,     // (x f32 [M,N] or [M,U,N]) -> the attribute's q8a type of that shape
  kMatmul,       // (x [M,K] f32, q8a_32 or q8a_16, weight [N,K]) -> f32 [M,N]: x . weight^T
  kBatchedMatmul,  // (x [M,H,K] as kMatmul has it, weight [H,N,K]) -> f32 [M,H*N]: each of H rows by a weight of its
                   // own
  kConcatRows,  // (weights [Ni,K]...) -> [sum Ni, K]: one weight made of several, done at load time; [E,Ni,K] likewise
  kSliceRows,   // (weight [N,K] or [N]) -> some of its rows, picked at load time
  kSplit,       // (x [M,N] or [M,U,N]) -> parts: columns of x
  kArrange,     // (x [M,N] or [M,U,N]...) -> f32 [M,H*W] or [M,H,W]: columns picked head by head
  kGlu,         // (gate, up) -> f32: act(gate) * up
  kActivate,    // (x) -> f32: act(x)
  kRopeFreqs,   // ([factors [dims/2], [factors of long contexts [dims/2]]]) -> f32 [dims/2]
  kRopeTable,   // (positions [T], freqs [F]) -> f32 [T,F,2]: cos, sin
  kRope,        // (x [T,heads*head_dim], table) -> f32
  kKvStore,     // (state, k [T,kv_heads*head_dim], [v [T,kv_heads*value_dim]], positions, sequence, block_table) ->
                // state; no v where the state's rows are shared
  kAttention,   // (q [T,heads*head_dim], state, positions, sequence, block_table, kv_length, [sinks [heads]]) -> f32
                // [T,heads*value_dim]
  kGatherRows,  // (x [T,N], rows [R]) -> [R,N]
  kRoute,  // (logits [M,E], [bias [E]]) -> i32 [M,U], f32 [M,U]: the experts of each row, best first, and their shares
  kExpertMatmul,  // (x [M,K] or [M,U,K], weight [E,N,K], experts [M,U]) -> f32 [M,U,N]: x by its chosen experts' rows
  kExpertAdd,     // (x [M,U,N], bias [E,N,1], experts [M,U]) -> f32 [M,U,N]
  kExpertSum,     // (x [M,U,N], shares [M,U]) -> f32 [M,N]: the sum of share * x over the chosen experts
  // The ops of kernels/elementwise/elementwise.h: (x) -> f32: f(x), or (a [M,N], b [M,N] or [N]) -> f32: f(a, b)
  FORGE_ELEMENTWISE_FUNCTIONS(FORGE_OP, FORGE_NO_ROW)  //
  kCount_,
};
#undef FORGE_OP

/// Bytes and FLOPs of one execution under bounds; weights are counted in their stored type.
struct Cost {
  std::int64_t weight_bytes = 0;      ///< read from weights (an embedding reads its rows only)
  std::int64_t activation_bytes = 0;  ///< operands read and results written
  std::int64_t flops = 0;
};

struct Tensor;       // interpreter.h
struct EvalContext;  // interpreter.h

struct OpDef {
  Op op{};
  std::string_view name;
  std::uint8_t operands_min = 0, operands_max = 0;  ///< 255: any number
  std::size_t attrs_index = 0;                      ///< alternative of Attrs that this op has
  bool has_effect = false;            ///< writes the KV cache: never duplicated or dropped while its state is used
  bool elementwise = false;           ///< result element (i,j) needs operand elements (i,j) only (vectors broadcast)
  std::int8_t in_place_operand = -1;  ///< the result may take this operand's buffer
  std::optional<elementwise::Function> function;  ///< of ops that are a row of kernels/elementwise
  /// Result types from operand types. Throws Error(kInternal) that names the op, the operand and both shapes.
  std::vector<TensorType> (*infer)(const Attrs&, std::span<const TensorType>){};
  Cost (*cost)(const Attrs&, std::span<const TensorType> operands, std::span<const TensorType> results,
               const Bounds&){};
  /// Scalar reference in f32/f64; nullptr for sources.
  void (*reference)(const Attrs&, std::span<const Tensor* const> operands, std::span<Tensor> results, EvalContext&){};
};

const OpDef& op_def(Op op);
/// Result types of `op`: checks the kind of attributes and the number of operands, runs the shape rule, and bounds what
/// comes out (rank at most 4, at most 2^40 elements of constant dims, whole blocks a row). Throws Error(kInternal).
std::vector<TensorType> infer_types(Op op, const Attrs& attrs, std::span<const TensorType> operands);
/// What an elementwise op, or glu or activate, computes of each element.
struct FunctionCall {
  elementwise::Function function{};
  elementwise::Parameters parameters{};
};
/// Nothing for any other op.
std::optional<FunctionCall> function_call(Op op, const Attrs& attrs);
/// nullptr when no op has that name.
const OpDef* find_op(std::string_view name);

}  // namespace forge::ir
