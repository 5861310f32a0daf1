// Mixture of experts (arXiv 1701.06538, 2101.03961): a router chooses U of E experts for each row, the matmuls use the
// chosen experts' weights only, and the results are summed with the routing weights ("shares"). A slot is one row with
// one of its experts: a value [M,U,N] has U slots a row, in the router's order, best expert first.
//
//   logits [M,E] --route--> experts i32 [M,U], shares f32 [M,U]
//   x [M,K] --expert_matmul(experts)--> [M,U,N] --glu, expert_matmul--> [M,U,K] --expert_sum(shares)--> [M,K]

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

/// Lower limit of the sum that routing weights are divided by, so that they stay bounded when all chosen experts'
/// sigmoids vanish: 2^-14, the smallest normal f16, which is what models in f16 were run with.
constexpr double kRoutingSumMin = 6.103515625e-5;

void check_attrs(const RouteAttrs& route, std::int64_t experts) {
  attr_between("route", "used", route.used, 1, experts);
  attr_between("route", "groups", route.groups, 1, experts);
  if (experts % route.groups != 0)
    refuse_attr("route", "groups", fmt::to_string(route.groups), fmt::format("a divisor of {} experts", experts));
  attr_between("route", "groups_used", route.groups_used, 1, route.groups);
  attr_between("route", "group_top", route.group_top, 1, experts / route.groups);
  if (route.used > experts / route.groups * route.groups_used)
    refuse_attr("route", "used", fmt::to_string(route.used),
                fmt::format("at most the experts of {} groups", route.groups_used));
  attr_between("route", "experts_per_adjugate", route.experts_per_adjugate, 1, experts);
  if (experts % route.experts_per_adjugate != 0)
    refuse_attr("route", "experts_per_adjugate", fmt::to_string(route.experts_per_adjugate),
                fmt::format("a divisor of {} experts", experts));
  if (!std::isfinite(route.scale)) refuse_attr("route", "scale", "not finite", "finite");
}

std::vector<TensorType> infer_route(const Attrs& attrs, Types operands) {
  const auto& route = std::get<RouteAttrs>(attrs);
  require_f32("route", operands, 0, 2);
  check_attrs(route, operands[0].cols());
  const TensorType vector{DType::kF32, {operands[0].cols()}};
  for (std::size_t i = 1; i < operands.size(); ++i)
    if (operands[i] != vector) refuse_operand("route", i, operands[i], vector.text() + ", one an expert");
  const Shape chosen{operands[0].shape[0], route.used};
  return {{DType::kI32, chosen}, {DType::kF32, chosen}};
}

/// Throws unless the operand is experts i32 [M,U] that match operand 0: its rows for `rank` 2, its rows and slots for
/// `rank` 3.
void require_chosen(std::string_view op, Types operands, std::size_t operand, std::size_t rank) {
  const TensorType& experts = operands[operand];
  const Shape& x = operands[0].shape;
  if (experts.dtype != DType::kI32 || experts.shape.size() != 2 || !experts.shape[1].is_constant() ||
      experts.shape[0] != x[0] || (rank == 3 && experts.shape[1] != x[1]))
    refuse_operand(op, operand, experts, fmt::format("i32, the experts of each row of {}", operands[0].text()));
}

std::vector<TensorType> infer_expert_matmul(const Attrs&, Types operands) {
  const TensorType& x = operands[0];
  const TensorType& weight = operands[1];
  const std::size_t rank = x.shape.size();
  if (!is_activation_dtype(x.dtype) || (rank != 2 && rank != 3) || !x.shape.back().is_constant())
    refuse_operand("expert_matmul", 0, x, "f32, q8a_32, q8a_16 or q16a_16 [M,K] or [M,U,K] with a constant K");
  if (!is_weight_dtype(weight.dtype) || weight.shape.size() != 3 ||
      !std::ranges::all_of(weight.shape, &Dim::is_constant) || weight.shape[2] != x.shape.back())
    refuse_operand("expert_matmul", 1, weight,
                   fmt::format("a weight [E,N,{}] of constant dimensions, as operand 0 is {}", x.cols(), x.text()));
  require_chosen("expert_matmul", operands, 2, rank);
  return {{DType::kF32, {x.shape[0], operands[2].shape[1], weight.shape[1]}}};
}

std::vector<TensorType> infer_expert_add(const Attrs&, Types operands) {
  require_f32("expert_add", operands, 0, 3);
  const TensorType& bias = operands[1];
  if (bias.dtype != DType::kF32 || bias.shape.size() != 3 || !bias.shape[0].is_constant() ||
      bias.shape[1] != operands[0].shape[2] || bias.shape[2] != Dim(1))
    refuse_operand("expert_add", 1, bias,
                   fmt::format("f32 [E,{},1], as operand 0 is {}", operands[0].cols(), operands[0].text()));
  require_chosen("expert_add", operands, 2, 3);
  return {operands[0]};
}

std::vector<TensorType> infer_expert_scale(const Attrs&, Types operands) {
  require_f32("expert_scale", operands, 0, 3);
  const TensorType& factors = operands[1];
  if (factors.dtype != DType::kF32 || factors.shape.size() != 1 || !factors.shape[0].is_constant())
    refuse_operand("expert_scale", 1, factors, "f32 [E] of constant E");
  require_chosen("expert_scale", operands, 2, 3);
  return {operands[0]};
}

std::vector<TensorType> infer_expert_sum(const Attrs&, Types operands) {
  require_f32("expert_sum", operands, 0, 3);
  const Shape& x = operands[0].shape;
  const TensorType shares{DType::kF32, {x[0], x[1]}};
  if (operands[1] != shares)
    refuse_operand("expert_sum", 1, operands[1],
                   fmt::format("{}, the shares of {}", shares.text(), operands[0].text()));
  return {{DType::kF32, {x[0], x[2]}}};
}

/// About 8 FLOPs an expert for the softmax or sigmoid, and one comparison for each expert and chosen place.
Cost route_cost(const Attrs& attrs, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands.first(1), results, bounds, 0);
  if (operands.size() > 1) cost.weight_bytes = operands[1].bytes(bounds);
  cost.flops = (8 + std::get<RouteAttrs>(attrs).used) * operands[0].elements(bounds);
  return cost;
}

/// Weight bytes read at most: every slot may choose another expert, but no more than all of them are read.
std::int64_t chosen_bytes(const TensorType& weight, const TensorType& experts, const Bounds& bounds) {
  const std::int64_t all = weight.shape[0].value;
  return weight.bytes(bounds) / all * std::min(all, experts.elements(bounds));
}

Cost expert_matmul_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  const std::int64_t expert = operands[1].elements(bounds) / operands[1].shape[0].value;
  return {.weight_bytes = chosen_bytes(operands[1], operands[2], bounds),
          .activation_bytes = operands[0].bytes(bounds) + operands[2].bytes(bounds) + results[0].bytes(bounds),
          .flops = 2 * operands[2].elements(bounds) * expert};
}

Cost expert_add_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands.first(1), results, bounds, 1);
  cost.weight_bytes = chosen_bytes(operands[1], operands[2], bounds);
  return cost;
}

Cost expert_scale_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands.first(1), results, bounds, 1);
  cost.weight_bytes = operands[1].bytes(bounds);
  return cost;
}

Cost expert_sum_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  Cost cost = streaming_cost(operands, results, bounds, 0);
  cost.flops = 2 * operands[0].elements(bounds);
  return cost;
}

/// Indices of the `count` largest values of `rank`, largest first; equal values in index order. NaN counts as
/// -infinity.
std::vector<std::size_t> best(std::vector<double> rank, std::size_t count) {
  constexpr double kTaken = -std::numeric_limits<double>::infinity();
  std::vector<std::size_t> places(rank.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = i;
    if (std::isnan(rank[i])) rank[i] = kTaken;
  }
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) { return rank[a] > rank[b]; });
  places.resize(count);
  return places;
}

/// Scores of all experts for one row: sigmoids, or a softmax with the maximum subtracted for range.
std::vector<double> gate_values(RouteGate gate, std::span<const float> logits) {
  std::vector<double> values(logits.begin(), logits.end());
  if (gate == RouteGate::kSigmoid) {
    for (double& value : values) value = 1 / (1 + std::exp(-value));
    return values;
  }
  const double top = *std::ranges::max_element(values);
  double total = 0;
  for (double& value : values) total += value = std::exp(value - top);
  for (double& value : values) value /= total;
  return values;
}

/// The experts that may be chosen, in ascending order: those of the `groups_used` best groups. With one group that is
/// all of them.
std::vector<std::size_t> candidates(const RouteAttrs& route, std::span<const double> rank) {
  const std::size_t group = rank.size() / static_cast<std::size_t>(route.groups);
  std::vector<double> worth;
  for (std::size_t first = 0; first < rank.size(); first += group) {
    const std::vector<double> members(rank.begin() + static_cast<std::ptrdiff_t>(first),
                                      rank.begin() + static_cast<std::ptrdiff_t>(first + group));
    double sum = 0;
    for (const auto place : best(members, static_cast<std::size_t>(route.group_top))) sum += members[place];
    worth.push_back(sum);
  }
  auto groups = best(worth, static_cast<std::size_t>(route.groups_used));
  std::ranges::sort(groups);
  std::vector<std::size_t> experts;
  for (const auto number : groups)
    for (std::size_t i = 0; i < group; ++i) experts.push_back(number * group + i);
  return experts;
}

/// Ranks experts by score plus bias, chooses among the candidates and normalises the scores of the chosen ones, or of
/// the adjugate experts that these stand for. The bias enters the rank only.
void run_route(const Attrs& attrs, Operands operands, Results results, EvalContext&) {
  const auto& route = std::get<RouteAttrs>(attrs);
  const Tensor& logits = *operands[0];
  const auto width = static_cast<std::size_t>(logits.cols()), used = static_cast<std::size_t>(route.used);
  for (std::size_t row = 0; row < static_cast<std::size_t>(logits.rows()); ++row) {
    const auto gate = gate_values(route.gate, std::span(logits.f32).subspan(row * width, width));
    std::vector<double> rank = gate;
    for (std::size_t e = 0; operands.size() > 1 && e < width; ++e) rank[e] += operands[1]->f32[e];
    const auto among = candidates(route, rank);
    std::vector<double> open;
    for (const auto expert : among) open.push_back(rank[expert]);
    std::vector<std::size_t> chosen;
    double sum = 0;
    for (const auto place : best(open, used)) {
      chosen.push_back(among[place] / static_cast<std::size_t>(route.experts_per_adjugate));
      sum += gate[chosen.back()];
    }
    const double factor =
        route.share == RoutingNormalization::kChosen ? route.scale / std::max(sum, kRoutingSumMin) : route.scale;
    for (std::size_t u = 0; u < used; ++u) {
      const double own = operands.size() > 2 ? operands[2]->f32[chosen[u]] : 1;
      results[0].i32[row * used + u] = static_cast<std::int32_t>(chosen[u]);
      results[1].f32[row * used + u] = static_cast<float>(gate[chosen[u]] * factor * own);
    }
  }
}

/// The expert of a slot. Throws if it is not below `count`.
std::size_t expert_of(const Tensor& experts, std::size_t slot, std::int64_t count) {
  const std::int32_t expert = experts.i32[slot];
  if (expert < 0 || expert >= count)
    throw Error(ErrorCode::kInternal, fmt::format("expert {} of {} was chosen", expert, count));
  return static_cast<std::size_t>(expert);
}

/// Slot s multiplies its own row for x [M,U,K] and row s / U for x [M,K], which all slots of a row share.
void run_expert_matmul(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& x = *operands[0];
  const Tensor& weight = *operands[1];
  const Tensor& experts = *operands[2];
  const auto k_count = static_cast<std::size_t>(x.cols()), n_count = static_cast<std::size_t>(results[0].cols());
  const std::size_t slots_a_row = x.dims.size() == 3 ? 1 : static_cast<std::size_t>(experts.cols());
  for (std::size_t slot = 0; slot < experts.i32.size(); ++slot) {
    const float* a = x.f32.data() + slot / slots_a_row * k_count;
    const float* b = weight.f32.data() + expert_of(experts, slot, weight.dims[0]) * n_count * k_count;
    for (std::size_t n = 0; n < n_count; ++n, b += k_count) {
      double sum = 0;
      for (std::size_t k = 0; k < k_count; ++k) sum += static_cast<double>(a[k]) * b[k];
      results[0].f32[slot * n_count + n] = static_cast<float>(sum);
    }
  }
}

void run_expert_add(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& x = *operands[0];
  const auto width = static_cast<std::size_t>(x.cols());
  for (std::size_t slot = 0; slot < operands[2]->i32.size(); ++slot) {
    const std::size_t expert = expert_of(*operands[2], slot, operands[1]->dims[0]);
    for (std::size_t i = 0; i < width; ++i)
      results[0].f32[slot * width + i] = x.f32[slot * width + i] + operands[1]->f32[expert * width + i];
  }
}

void run_expert_scale(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& x = *operands[0];
  const auto width = static_cast<std::size_t>(x.cols());
  for (std::size_t slot = 0; slot < operands[2]->i32.size(); ++slot) {
    const float factor = operands[1]->f32[expert_of(*operands[2], slot, operands[1]->dims[0])];
    for (std::size_t i = 0; i < width; ++i) results[0].f32[slot * width + i] = x.f32[slot * width + i] * factor;
  }
}

void run_expert_sum(const Attrs&, Operands operands, Results results, EvalContext&) {
  const auto width = static_cast<std::size_t>(results[0].cols()), used = static_cast<std::size_t>(operands[1]->cols());
  for (std::size_t i = 0; i < results[0].f32.size(); ++i) {
    const std::size_t row = i / width;
    double sum = 0;
    for (std::size_t slot = row * used; slot < (row + 1) * used; ++slot)
      sum += static_cast<double>(operands[1]->f32[slot]) * operands[0]->f32[slot * width + i % width];
    results[0].f32[i] = static_cast<float>(sum);
  }
}

}  // namespace

std::span<const OpDef> expert_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kRoute,
            .name = "route",
            .operands_min = 1,
            .operands_max = 3,
            .attrs_index = attrs_index<RouteAttrs>(),
            .infer = infer_route,
            .cost = route_cost,
            .reference = run_route},
      OpDef{.op = Op::kExpertMatmul,
            .name = "expert_matmul",
            .operands_min = 3,
            .operands_max = 3,
            .infer = infer_expert_matmul,
            .cost = expert_matmul_cost,
            .reference = run_expert_matmul},
      OpDef{.op = Op::kExpertAdd,
            .name = "expert_add",
            .operands_min = 3,
            .operands_max = 3,
            .in_place_operand = 0,
            .infer = infer_expert_add,
            .cost = expert_add_cost,
            .reference = run_expert_add},
      OpDef{.op = Op::kExpertScale,
            .name = "expert_scale",
            .operands_min = 3,
            .operands_max = 3,
            .in_place_operand = 0,
            .infer = infer_expert_scale,
            .cost = expert_scale_cost,
            .reference = run_expert_scale},
      OpDef{.op = Op::kExpertSum,
            .name = "expert_sum",
            .operands_min = 2,
            .operands_max = 2,
            .infer = infer_expert_sum,
            .cost = expert_sum_cost,
            .reference = run_expert_sum},
  };
  return kDefs;
}

}  // namespace forge::ir::ops
