#include "runtime/cpu/load_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

#include "kernels/cpu/matmul/pack.h"
#include "runtime/weights/weight_part.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

/// What a task packs. With the file's bytes that it is made of it stays in a core's second cache.
constexpr std::size_t kTaskBytes = std::size_t{128} << 10;
/// Parts of a weight that are laid out one behind the other, or alternate.
struct Part {
  std::size_t first_source = 0, sources = 1;  ///< of the job's; scattered: one for each slice
  std::size_t rows = 0, packed_begin = 0;     ///< of one slice: its rows, and where they begin among the packed ones
};

/// A weight whose numbers have been checked.
struct Job {
  const plan::WeightT* weight = nullptr;
  DType dtype{};
  std::size_t slices = 1, slice_rows = 0;  ///< packed rows of one slice
  std::size_t k = 0, unit = 0, row_bytes = 0, groups = 0, groups_a_task = 1, first_task = 0;
  bool pack = false;
  std::byte* out = nullptr;
  std::vector<WeightPart> sources;
  std::vector<Part> parts;

  /// A row of the file: null for padding, which no file has.
  struct Row {
    const WeightPart* source = nullptr;
    std::uint64_t row = 0;
    bool operator==(const Row&) const = default;
  };
  [[nodiscard]] Row row(const Part& part, std::size_t slice, std::size_t index) const {
    if (index >= part.rows) return {};
    if (part.sources > 1) return {&sources[part.first_source + slice], index};
    return {&sources[part.first_source], slice * part.rows + index};
  }
  /// What stands in a packed row.
  [[nodiscard]] Row row(std::size_t packed) const {
    const std::size_t slice = packed / slice_rows;
    packed %= slice_rows;
    if (unit > 0)
      return row(parts[packed / unit % parts.size()], slice, packed / (unit * parts.size()) * unit + packed % unit);
    std::size_t p = parts.size() - 1;
    while (packed < parts[p].packed_begin) --p;
    return row(parts[p], slice, packed - parts[p].packed_begin);
  }
};

[[noreturn]] void fail(const plan::WeightT& weight, const char* why) {
  throw Error(ErrorCode::kPlan, "weight '" + printable(weight.name) + "' of the plan is broken", why,
              "compile the plan again");
}

/// The sources, each as large as its part of the weight: all of a part are alike.
std::vector<WeightPart> read_sources(const plan::WeightT& weight, const WeightSource& model) {
  std::vector<WeightPart> out;
  std::int64_t rows = 0;
  for (const auto& source : weight.sources) {
    if (source == nullptr) fail(weight, "a source is missing");
    const auto part = WeightPart::of(weight, *source, model);
    if (!part) fail(weight, part.error());
    if (source->cols != weight.cols) fail(weight, "a source has another length of rows");
    if (part->rows() > static_cast<std::uint64_t>(weight.rows - rows)) fail(weight, "its parts are not its rows");
    rows += static_cast<std::int64_t>(part->rows());
    out.push_back(*part);
  }
  if (rows != weight.rows) fail(weight, "its parts are not its rows");
  return out;
}

void take_parts(const plan::WeightT& weight, Job& job) {
  const std::size_t sources = weight.scattered ? job.slices : 1;
  if (job.sources.empty() || job.sources.size() % sources != 0) fail(weight, "its slices are cut");
  for (std::size_t s = 0; s < job.sources.size(); s += sources) {
    const auto rows = static_cast<std::size_t>(weight.sources[s]->rows);
    for (std::size_t i = s; i < s + sources; ++i)
      if (weight.sources[i]->rows != weight.sources[s]->rows) fail(weight, "a slice has another size");
    if (job.unit > 0 && (weight.sources[s]->rows != weight.sources[0]->rows || rows % job.unit != 0))
      fail(weight, "its parts do not alternate");
    job.parts.push_back({.first_source = s, .sources = sources, .rows = rows, .packed_begin = job.slice_rows});
    job.slice_rows += job.pack && job.unit == 0 ? quant::x16_groups(rows) * quant::kX16Rows : rows;
  }
}

Job make_job(const plan::WeightT& weight, const WeightSource& model, std::byte* weights, std::size_t weights_bytes) {
  const auto* info = find_dtype(weight.dtype);
  if (info == nullptr || weight.rows < 1 || weight.cols < 1 || weight.rows > 1 << 28 || weight.cols > 1 << 28 ||
      weight.cols % info->block_elems != 0 || weight.unit < 0 || weight.unit > 1 << 28 || weight.slices < 1 ||
      weight.slices > weight.rows)
    fail(weight, "its type or shape is absurd");
  Job job{.weight = &weight,
          .dtype = info->type,
          .slices = static_cast<std::size_t>(weight.slices),
          .k = static_cast<std::size_t>(weight.cols),
          .unit = static_cast<std::size_t>(weight.unit)};
  job.row_bytes = row_bytes(job.dtype, job.k);
  job.pack = weight.layout == static_cast<std::uint8_t>(quant::Layout::kX16);
  if (job.pack && !quant::has_kernels(job.dtype)) fail(weight, "its type has no packed layout");
  job.sources = read_sources(weight, model);
  take_parts(weight, job);
  if (job.pack) job.slice_rows = quant::x16_groups(job.slice_rows) * quant::kX16Rows;
  job.groups = job.slices * job.slice_rows / quant::kX16Rows;
  const std::size_t bytes =
      job.pack ? job.groups * quant::x16_group_bytes(job.dtype, job.k) : job.slices * job.slice_rows * job.row_bytes;
  if (weight.bytes != bytes || weight.offset > weights_bytes || bytes > weights_bytes - weight.offset)
    fail(weight, "it leaves its block");
  job.out = weights + weight.offset;
  if (job.pack) job.groups_a_task = std::max<std::size_t>(1, kTaskBytes / quant::x16_group_bytes(job.dtype, job.k));
  return job;
}

/// Reads packed rows [begin, end) of the job to `out`; rows that follow each other in a source at once.
void read_rows(const Job& job, std::size_t begin, std::size_t end, const WeightSource& model, std::byte* out) {
  for (std::size_t row = begin; row < end;) {
    const auto at = job.row(row);
    std::size_t run = 1;
    while (at.source != nullptr && row + run < end && job.row(row + run) == Job::Row{at.source, at.row + run}) ++run;
    if (at.source != nullptr)
      at.source->read(model, at.row * job.row_bytes, {out + (row - begin) * job.row_bytes, run * job.row_bytes});
    row += run;
  }
}

/// Reads the rows of some groups into `native`, and packs them.
void read_and_pack(const Job& job, std::size_t task, const WeightSource& model, const cpu::Kernels& kernels,
                   std::vector<std::byte>& native) {
  const std::size_t first = task * job.groups_a_task, count = std::min(job.groups_a_task, job.groups - first);
  const std::size_t begin = first * quant::kX16Rows, end = begin + count * quant::kX16Rows;
  native.resize(std::max(native.size(), (end - begin) * job.row_bytes));
  read_rows(job, begin, end, model, native.data());
  const auto row_of = [&](std::size_t row) -> const std::byte* {
    return job.row(row).source == nullptr ? nullptr : native.data() + (row - begin) * job.row_bytes;
  };
  std::byte* out = job.out + first * quant::x16_group_bytes(job.dtype, job.k);
  cpu::pack_rows(kernels, job.dtype, job.k, first, count, row_of, out);
}

/// All weights as tasks of a pool. Tasks must not throw: what the first failed read threw is kept for the caller.
class Loading {
 public:
  Loading(std::vector<Job> jobs, const WeightSource& model, const cpu::Kernels& kernels, std::size_t workers)
      : jobs_(std::move(jobs)), model_(model), kernels_(kernels), native_(workers) {}

  void operator()(std::size_t task, std::size_t worker) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    const auto after = std::upper_bound(jobs_.begin(), jobs_.end(), task,
                                        [](std::size_t t, const Job& job) { return t < job.first_task; });
    const Job& job = *(after - 1);
    try {
      if (job.pack)
        read_and_pack(job, task - job.first_task, model_, kernels_, native_[worker]);
      else
        read_rows(job, 0, job.slices * job.slice_rows, model_, job.out);
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::vector<Job> jobs_;  ///< in the order of their tasks
  const WeightSource& model_;
  const cpu::Kernels& kernels_;
  std::vector<std::vector<std::byte>> native_;  ///< of each worker
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
};

}  // namespace

std::uint64_t load_weights(const plan::ProgramT& program, const WeightSource& model, std::byte* weights,
                           std::size_t weights_bytes, const cpu::Kernels& kernels, ThreadPool& pool) {
  std::vector<Job> jobs;
  std::size_t tasks = 0;
  std::uint64_t read = 0;
  for (const auto& step : program.load_steps) {
    const auto* load = step == nullptr ? nullptr : step->body.AsLoadWeight();
    if (load == nullptr || load->weight >= program.weights.size() || program.weights[load->weight] == nullptr)
      throw Error(ErrorCode::kPlan, "a load step of the plan is broken", {}, "compile the plan again");
    const auto& weight = *program.weights[load->weight];
    auto& job = jobs.emplace_back(make_job(weight, model, weights, weights_bytes));
    job.first_task = tasks;
    tasks += job.pack ? (job.groups + job.groups_a_task - 1) / job.groups_a_task : 1;
    for (const auto& source : job.sources) read += source.bytes();
  }
  Loading loading(std::move(jobs), model, kernels, pool.size());
  pool.run(tasks, loading);
  loading.rethrow();
  return read;
}

}  // namespace forge::runtime
