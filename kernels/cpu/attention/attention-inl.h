#pragma once
// Attention over all chunks of the paged cache that a query sees (attention.h), and the merging of chunks. The loops
// within a chunk are in attention_rows-inl.h and attention_groups-inl.h.

#include "kernels/cpu/attention/attention_groups-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// The positions of the chunk starting at `start` that a query at `position` sees: [*begin, *end) relative to `start`.
/// Returns false if there are none.
FORGE_INLINE bool seen_of_chunk(const AttentionParams& params, std::int32_t position, std::size_t start,
                                std::size_t* begin, std::size_t* end) {
  const auto at = static_cast<std::int64_t>(position), from = static_cast<std::int64_t>(start);
  std::int64_t stop = at + 1, length = static_cast<std::int64_t>(params.kv_length);
  std::int64_t first = attention_first_position(params, position);
  stop = stop < length ? stop : length;
  stop = stop < from + static_cast<std::int64_t>(kAttentionChunk) ? stop
                                                                  : from + static_cast<std::int64_t>(kAttentionChunk);
  first = first > from ? first : from;
  if (first >= stop) return false;
  *begin = static_cast<std::size_t>(first - from);
  *end = static_cast<std::size_t>(stop - from);
  return true;
}

/// Narrows the positions [*begin, *end) of the chunk at `start` to those from the first selected one of token t to its
/// last. Returns false if there are none.
FORGE_INLINE bool selected_of_chunk(const AttentionQuery& query, std::size_t t, std::size_t start, std::size_t* begin,
                                    std::size_t* end, Selected* out) {
  const std::int32_t* numbers = query.selected + t * query.selected_stride;
  *out = {.numbers = numbers, .count = 0, .block = query.selected_block, .start = start};
  // As unsigned numbers a list ascends to its end. The first one that reaches into the chunk:
  const std::size_t lowest = (start + *begin) / query.selected_block;
  std::size_t low = 0, high = query.selected_count;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (static_cast<std::uint32_t>(numbers[middle]) < lowest)
      low = middle + 1;
    else
      high = middle;
  }
  std::size_t first = *end, last = *begin;
  for (std::size_t n = low; n < query.selected_count && numbers[n] >= 0; ++n) {
    std::size_t from = *begin, to = *end;
    selected_range(*out, numbers[n], &from, &to);
    if (from == to) break;
    first = from < first ? from : first;
    last = to > last ? to : last;
    out->count = n + 1 - low;
  }
  out->numbers = numbers + low;
  *begin = first;
  *end = last;
  return first < last;
}

/// attention_chunk for one element type of the cache. Collects the rows that see something of the chunk and computes up
/// to kAttentionRows of them at once; many rows, and shared K/V rows, first convert blocks to floats.
template <class Kv>
void attention_chunk_of(const AttentionParams& params, const AttentionQuery& query, std::size_t number, float* scratch,
                        float* partials) {
  const auto& kv = params.kv;
  const std::size_t start = number * kAttentionChunk;
  const std::size_t key_bytes = kv_head_bytes(kv.type, kv.head_dim);
  const std::size_t value_bytes = kv.shared_row ? key_bytes : kv_head_bytes(kv.type, kv.value_dim);
  Chunk chunk{.head_dim = kv.head_dim,
              .value_dim = kv.value_dim,
              .value_row = kv.shared_row ? kv.head_dim : kv.value_dim,
              .scale = params.scale,
              .softcap = params.softcap,
              .keys = {},
              .values = {}};
  for (std::size_t b = 0; b < kChunkBlocks; ++b) {
    const std::size_t position = start + b * kKvBlockTokens;
    // Blocks before the window may be freed already. Their table entries are read here, but the pointers are not used.
    if (position >= params.kv_length) continue;
    const auto at = static_cast<std::ptrdiff_t>(params.block_table[position / kKvBlockTokens]);
    const std::byte* block = params.pool + at * static_cast<std::ptrdiff_t>(params.block_stride);
    chunk.keys[b] = block + query.kv_head * key_bytes;
    chunk.values[b] = block + kv_values_offset(kv) + query.kv_head * value_bytes;
  }
  Rows groups[kAttentionRows / kRowsTogether];
  std::size_t count = 0;
  const auto compute = [&] {
    if (count > 0 && kv.shared_row)
      compute_groups<Kv, true>(chunk, groups, count, scratch);
    else if (count > kRowsTogether)
      compute_groups<Kv, false>(chunk, groups, count, scratch);
    else if (count > 0)
      for_count<kRowsTogether>(count, [&]<std::size_t R>() { compute_rows<Kv, R>(chunk, groups[0]); });
    count = 0;
  };
  for (std::size_t row = 0; row < query.tokens * params.group; ++row) {
    const std::size_t t = row / params.group, g = row % params.group;
    float* partial = partials + row * attention_partial_floats(kv.value_dim);
    Rows& rows = groups[count / kRowsTogether];
    const std::size_t r = count % kRowsTogether;
    rows.selected[r].numbers = nullptr;
    if (!seen_of_chunk(params, query.positions[t], start, &rows.begin[r], &rows.end[r]) ||
        (query.selected != nullptr &&
         !selected_of_chunk(query, t, start, &rows.begin[r], &rows.end[r], &rows.selected[r]))) {
      std::memset(partial, 0, attention_partial_floats(kv.value_dim) * sizeof(float));
      partial[0] = -__builtin_inff();
      continue;
    }
    rows.q[r] = query.q + t * query.token_stride + g * query.head_stride;
    rows.partial[r] = partial;
    rows.slope[r] = query.slopes ? query.slopes[g] : 0;
    rows.at[r] = static_cast<float>((query.places ? query.places : query.positions)[t]) - static_cast<float>(start);
    if (++count == kAttentionRows) compute();
  }
  compute();
}
inline void attention_chunk(const AttentionParams& params, const AttentionQuery& query, std::size_t chunk,
                            float* scratch, float* partials) {
  if (params.kv.type == DType::kQ8_0)
    attention_chunk_of<KvQ8>(params, query, chunk, scratch, partials);
  else
    attention_chunk_of<KvF16>(params, query, chunk, scratch, partials);
}

/// Merges the next chunk's partial result into `state`: both are rescaled to the larger m and added. This is the only
/// place where chunks are combined.
FORGE_INLINE void merge_partial(float* state, const float* next, std::size_t floats) {
  if (next[1] == 0) return;
  if (state[1] == 0) {
    std::memcpy(state, next, floats * sizeof(float));
    return;
  }
  const float m = state[0] > next[0] ? state[0] : next[0];
  const float a = exp(state[0] - m), b = exp(next[0] - m);
  state[1] = state[1] * a + next[1] * b;
  state[0] = m;
  const V va = M::set1(a), vb = M::set1(b);
  for (std::size_t i = kAcc; i < floats; i += 16)
    M::store(add(mul(M::load(state + i), va), mul(M::load(next + i), vb)), state + i);
}

/// out = acc / l. A sink adds exp(sink - m) to l only.
FORGE_INLINE void finish_row(const float* state, const float* sink, std::size_t value_dim, float* out) {
  float l = state[1], factor = 1;
  if (l == 0) {
    std::memset(out, 0, value_dim * sizeof(float));
    return;
  }
  if (sink) {
    const float m = state[0] > *sink ? state[0] : *sink;
    factor = exp(state[0] - m);
    l = l * factor + exp(*sink - m);
  }
  const V share = M::set1(factor / l);
  for (std::size_t i = 0; i < value_dim; i += 16)
    store_some(mul(M::load(state + kAcc + i), share), out + i, value_dim - i);
}

inline void attention_merge(const AttentionParams& params, const AttentionQuery& query, const float* partials,
                            std::size_t chunks, std::size_t chunk_stride, float* out, std::size_t out_token_stride,
                            std::size_t out_head_stride) {
  const std::size_t floats = attention_partial_floats(params.kv.value_dim);
  alignas(64) float state[kAcc + kHeadDimMax];
  for (std::size_t row = 0; row < query.tokens * params.group; ++row) {
    const std::size_t t = row / params.group, g = row % params.group;
    state[1] = 0;
    for (std::size_t c = 0; c < chunks; ++c) merge_partial(state, partials + c * chunk_stride + row * floats, floats);
    finish_row(state, query.sinks ? query.sinks + g : nullptr, params.kv.value_dim,
               out + t * out_token_stride + g * out_head_stride);
  }
}

inline void attention_tile(const AttentionParams& params, const AttentionQuery& query, float* scratch, float* out,
                           std::size_t out_token_stride, std::size_t out_head_stride) {
  const std::size_t floats = attention_partial_floats(params.kv.value_dim), rows = query.tokens * params.group;
  const std::size_t cached = attention_chunks(params.kv_length);
  std::size_t first = cached, last = 0;
  for (std::size_t t = 0; t < query.tokens; ++t) {
    const std::int32_t position = query.positions[t];
    if (position < 0) continue;
    const std::size_t begin = attention_first_chunk(params, position);
    const std::size_t end = static_cast<std::size_t>(position) / kAttentionChunk + 1;
    first = begin < first ? begin : first;
    last = end > last ? end : last;
  }
  last = last < cached ? last : cached;
  float* next = scratch + rows * floats;
  float* chunk_scratch = next + rows * floats;
  for (std::size_t row = 0; row < rows; ++row) scratch[row * floats + 1] = 0;
  for (std::size_t c = first; c < last; ++c) {
    attention_chunk(params, query, c, chunk_scratch, next);
    for (std::size_t row = 0; row < rows; ++row) merge_partial(scratch + row * floats, next + row * floats, floats);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t t = row / params.group, g = row % params.group;
    finish_row(scratch + row * floats, query.sinks ? query.sinks + g : nullptr, params.kv.value_dim,
               out + t * out_token_stride + g * out_head_stride);
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
