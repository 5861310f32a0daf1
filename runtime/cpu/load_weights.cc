// A weight may be assembled from several tensors, its sources: one after the other or alternating in units of rows, and
// slice by slice for experts. Each weight becomes a Job, and a job becomes tasks of whole 16-row groups.

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

/// Packed bytes per task. Together with the file's bytes that it reads, a task stays in a core's L2.
constexpr std::size_t kTaskBytes = std::size_t{128} << 10;
/// One of the tensors (per slice) that a weight is assembled from.
struct Part {
  std::size_t first_source = 0, sources = 1;  ///< index in Job::sources; scattered weights have a source per slice
  std::size_t rows = 0, packed_begin = 0;     ///< per slice: its rows, and the first packed row
};

/// One checked weight. Packed rows of a slice with parts A, B (unit 0), or alternating in units of u rows:
///   unit 0   | rows of A, padded to 16 | rows of B, padded to 16 |
///   unit u   | u rows of A | u rows of B | u rows of A | ... , padded to 16 at the end of the slice |
struct Job {
  const plan::WeightT* weight = nullptr;
  DType dtype{};
  std::size_t slices = 1, slice_rows = 0;  ///< slices (experts), and packed rows of each
  std::size_t k = 0, unit = 0, row_bytes = 0, groups = 0, groups_per_task = 1, first_task = 0;
  bool pack = false;
  std::byte* out = nullptr;
  std::vector<WeightPart> sources;
  std::vector<Part> parts;

  /// A row of a source; source is null for padding rows, which no file has.
  struct Row {
    const WeightPart* source = nullptr;
    std::uint64_t row = 0;
    bool operator==(const Row&) const = default;
  };
  /// Row `index` of a part in slice `slice`.
  [[nodiscard]] Row row(const Part& part, std::size_t slice, std::size_t index) const {
    if (index >= part.rows) return {};
    if (part.sources > 1) return {&sources[part.first_source + slice], index};
    return {&sources[part.first_source], slice * part.rows + index};
  }
  /// The source row of packed row `packed`.
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

/// Resolves the weight's sources in the model file and checks that their rows add up to the weight's.
std::vector<WeightPart> read_sources(const plan::WeightT& weight, const WeightSource& model) {
  std::vector<WeightPart> out;
  std::int64_t rows = 0;
  for (const auto& source : weight.sources) {
    if (source == nullptr) fail(weight, "a source is missing");
    const auto part = WeightPart::of(weight, *source, model);
    if (!part) fail(weight, part.error());
    if (source->cols != weight.cols) fail(weight, "a source has a different row length");
    if (part->rows() > static_cast<std::uint64_t>(weight.rows - rows))
      fail(weight, "its sources have more or fewer rows than the weight");
    rows += static_cast<std::int64_t>(part->rows());
    out.push_back(*part);
  }
  if (rows != weight.rows) fail(weight, "its sources have more or fewer rows than the weight");
  return out;
}

/// Groups the sources into parts and lays out the packed rows of one slice.
void take_parts(const plan::WeightT& weight, Job& job) {
  const std::size_t sources = weight.scattered ? job.slices : 1;
  if (job.sources.empty() || job.sources.size() % sources != 0)
    fail(weight, "its sources do not divide into its slices");
  for (std::size_t s = 0; s < job.sources.size(); s += sources) {
    const auto rows = static_cast<std::size_t>(weight.sources[s]->rows);
    for (std::size_t i = s; i < s + sources; ++i)
      if (weight.sources[i]->rows != weight.sources[s]->rows) fail(weight, "its slices differ in size");
    if (job.unit > 0 && (weight.sources[s]->rows != weight.sources[0]->rows || rows % job.unit != 0))
      fail(weight, "its sources cannot alternate: their rows differ or are not whole units");
    job.parts.push_back({.first_source = s, .sources = sources, .rows = rows, .packed_begin = job.slice_rows});
    job.slice_rows += job.pack && job.unit == 0 ? quant::x16_groups(rows) * quant::kX16Rows : rows;
  }
}

/// Checks a weight's numbers and its place in the weights block.
Job make_job(const plan::WeightT& weight, const WeightSource& model, std::byte* weights, std::size_t weights_bytes) {
  const auto* info = find_dtype(weight.dtype);
  if (info == nullptr || weight.rows < 1 || weight.cols < 1 || weight.rows > 1 << 28 || weight.cols > 1 << 28 ||
      weight.cols % info->block_elems != 0 || weight.unit < 0 || weight.unit > 1 << 28 || weight.slices < 1 ||
      weight.slices > weight.rows)
    fail(weight, "its type or shape is out of range");
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
  // Packed slices are whole groups, so an expert's weights can be addressed by group.
  if (job.pack) job.slice_rows = quant::x16_groups(job.slice_rows) * quant::kX16Rows;
  job.groups = job.slices * job.slice_rows / quant::kX16Rows;
  const std::size_t bytes =
      job.pack ? job.groups * quant::x16_group_bytes(job.dtype, job.k) : job.slices * job.slice_rows * job.row_bytes;
  if (weight.bytes != bytes || weight.offset > weights_bytes || bytes > weights_bytes - weight.offset)
    fail(weight, "it exceeds the weights block");
  job.out = weights + weight.offset;
  if (job.pack) job.groups_per_task = std::max<std::size_t>(1, kTaskBytes / quant::x16_group_bytes(job.dtype, job.k));
  return job;
}

/// Reads packed rows [begin, end) of the job to `out`. Rows that are adjacent in the file are read at once; padding
/// rows are skipped.
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

/// One task: reads the rows of some groups into `native` (scratch of the worker) and packs them.
void read_and_pack(const Job& job, std::size_t task, const WeightSource& model, const cpu::Kernels& kernels,
                   std::vector<std::byte>& native) {
  const std::size_t first = task * job.groups_per_task, count = std::min(job.groups_per_task, job.groups - first);
  const std::size_t begin = first * quant::kX16Rows, end = begin + count * quant::kX16Rows;
  native.resize(std::max(native.size(), (end - begin) * job.row_bytes));
  read_rows(job, begin, end, model, native.data());
  const auto row_of = [&](std::size_t row) -> const std::byte* {
    return job.row(row).source == nullptr ? nullptr : native.data() + (row - begin) * job.row_bytes;
  };
  std::byte* out = job.out + first * quant::x16_group_bytes(job.dtype, job.k);
  cpu::pack_rows(kernels, job.dtype, job.k, first, count, row_of, out);
}

/// The thread pool's task function over all jobs. Tasks must not throw, so the first exception is kept for the caller
/// and the remaining tasks do nothing.
class Loading {
 public:
  Loading(std::vector<Job> jobs, const WeightSource& model, const cpu::Kernels& kernels, std::size_t workers)
      : jobs_(std::move(jobs)), model_(model), kernels_(kernels), native_(workers) {}

  void operator()(std::size_t task, std::size_t worker) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    // The job of a task is the last one whose first task is not after it.
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
  std::vector<Job> jobs_;  ///< in order of first_task
  const WeightSource& model_;
  const cpu::Kernels& kernels_;
  std::vector<std::vector<std::byte>> native_;  ///< read buffer per worker
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
    tasks += job.pack ? (job.groups + job.groups_per_task - 1) / job.groups_per_task : 1;
    for (const auto& source : job.sources) read += source.bytes();
  }
  Loading loading(std::move(jobs), model, kernels, pool.size());
  pool.run(tasks, loading);
  loading.rethrow();
  return read;
}

}  // namespace forge::runtime
