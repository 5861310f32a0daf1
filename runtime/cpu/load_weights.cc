#include "runtime/cpu/load_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

#include "kernels/cpu/pack.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

/// What a task packs. With the file's bytes that it is made of it stays in a core's second cache.
constexpr std::size_t kTaskBytes = std::size_t{128} << 10;
constexpr std::uint64_t kPadding = ~std::uint64_t{0};  ///< where a row that no file has lies

struct Part {
  std::uint64_t rows = 0;                   ///< where they begin in the file
  std::size_t count = 0, packed_begin = 0;  ///< rows (bytes where nothing is packed) and place in one slice
  std::size_t first_source = 0;             ///< of those of its slices, where these are scattered
};

/// A weight whose numbers have been checked.
struct Job {
  const plan::WeightT* weight = nullptr;
  DType dtype{};
  std::size_t slices = 1, slice_rows = 0;  ///< packed rows of one slice
  std::size_t k = 0, unit = 0, row_bytes = 0, groups = 0, groups_a_task = 1, first_task = 0;
  bool pack = false;
  std::byte* out = nullptr;
  std::vector<Part> parts;

  /// Where the native bytes of a packed row begin in the file; kPadding for none.
  [[nodiscard]] std::uint64_t row(std::size_t packed) const {
    const std::size_t slice = packed / slice_rows;
    packed %= slice_rows;
    std::size_t p = 0, index = 0;
    if (unit > 0) {
      p = packed / unit % parts.size();
      index = packed / (unit * parts.size()) * unit + packed % unit;
    } else {
      p = parts.size() - 1;
      while (packed < parts[p].packed_begin) --p;
      index = packed - parts[p].packed_begin;
    }
    const auto& part = parts[p];
    if (index >= part.count) return kPadding;
    if (!weight->scattered) return part.rows + (slice * part.count + index) * row_bytes;
    return weight->sources[part.first_source + slice]->offset + index * row_bytes;
  }
};

[[noreturn]] void fail(const plan::WeightT& weight, const char* why) {
  throw Error(ErrorCode::kPlan, "weight '" + printable(weight.name) + "' of the plan is broken", why,
              "compile the plan again");
}

Job make_job(const plan::WeightT& weight, std::uint64_t file_bytes, std::byte* weights, std::size_t weights_bytes) {
  const auto* info = find_dtype(weight.dtype);
  if (info == nullptr || weight.rows < 1 || weight.cols < 1 || weight.rows > 1 << 28 || weight.cols > 1 << 28 ||
      weight.cols % info->block_elems != 0 || weight.unit < 0 || weight.unit > 1 << 28 || weight.slices < 1 ||
      weight.slices > weight.rows * weight.cols || weight.sources.empty())
    fail(weight, "its type or shape is absurd");
  Job job{.weight = &weight,
          .dtype = info->type,
          .slices = static_cast<std::size_t>(weight.slices),
          .k = static_cast<std::size_t>(weight.cols),
          .unit = static_cast<std::size_t>(weight.unit)};
  job.row_bytes = row_bytes(job.dtype, job.k);
  job.pack = weight.layout == static_cast<std::uint8_t>(quant::Layout::kX16);
  if (weight.scattered && (!job.pack || weight.sources.size() % job.slices != 0)) fail(weight, "its slices are cut");
  std::size_t native_bytes = 0, native_rows = 0;
  for (std::size_t s = 0; s < weight.sources.size(); ++s) {
    const auto& source = weight.sources[s];
    if (source == nullptr || source->rows < 1 || source->rows > weight.rows) fail(weight, "a source is no part of it");
    if (source->offset > file_bytes || source->bytes > file_bytes - source->offset)
      fail(weight, "a source leaves the model file");
    native_rows += static_cast<std::size_t>(source->rows);
    native_bytes += source->bytes;
    if (weight.scattered) {
      const auto& first = weight.sources[s / job.slices * job.slices];  // of the same part
      if (source->rows != first->rows || source->bytes != static_cast<std::size_t>(source->rows) * job.row_bytes)
        fail(weight, "a slice has another size");
      if (s % job.slices != 0) continue;
    } else if ((job.pack ? static_cast<std::size_t>(source->rows) : source->bytes) % job.slices != 0)
      fail(weight, "a source is no whole slices");
    const auto rows = static_cast<std::size_t>(source->rows) / (weight.scattered ? 1 : job.slices);
    if (job.pack) {
      if (!weight.scattered && source->bytes != job.slices * rows * job.row_bytes)
        fail(weight, "a source has another size");
      if (job.unit > 0 && (source->rows != weight.sources[0]->rows || rows % job.unit != 0))
        fail(weight, "its parts do not alternate");
      job.parts.push_back({source->offset, rows, job.slice_rows, s});
      job.slice_rows += job.unit > 0 ? rows : quant::x16_groups(rows) * quant::kX16Rows;
    } else {
      if (job.unit > 0 && (info->block_elems != 1 || source->bytes != weight.sources[0]->bytes ||
                           source->bytes / job.slices % (job.unit * info->block_bytes) != 0))
        fail(weight, "its parts do not alternate");
      job.parts.push_back({source->offset, source->bytes / job.slices, 0});
    }
  }
  if (job.pack && native_rows != static_cast<std::size_t>(weight.rows)) fail(weight, "its parts are not its rows");
  if (job.pack && !quant::has_kernels(job.dtype)) fail(weight, "its type has no packed layout");
  job.slice_rows = quant::x16_groups(job.slice_rows) * quant::kX16Rows;
  job.groups = job.slices * job.slice_rows / quant::kX16Rows;
  const std::size_t bytes = job.pack ? job.groups * quant::x16_group_bytes(job.dtype, job.k) : native_bytes;
  if (weight.bytes != bytes || weight.offset > weights_bytes || bytes > weights_bytes - weight.offset)
    fail(weight, "it leaves its block");
  job.out = weights + weight.offset;
  if (job.pack) job.groups_a_task = std::max<std::size_t>(1, kTaskBytes / quant::x16_group_bytes(job.dtype, job.k));
  return job;
}

/// Vectors: in each slice parts one behind the other, or alternating every `unit` elements.
void read_native(const Job& job, const WeightSource& model) {
  std::byte* out = job.out;
  for (std::size_t slice = 0; slice < job.slices; ++slice) {
    const std::size_t run = job.unit > 0 ? job.unit * row_bytes(job.dtype, 1) : job.parts[0].count;
    for (std::size_t begin = 0; begin < job.parts[0].count; begin += run)
      for (const auto& part : job.parts) {
        const std::size_t count = job.unit > 0 ? run : part.count;
        model.read(part.rows + slice * part.count + begin, {out, count});
        out += count;
      }
  }
}

/// Reads the rows of some groups into `native`, rows that follow each other in the file at once, and packs them.
void read_and_pack(const Job& job, std::size_t task, const WeightSource& model, const cpu::Kernels& kernels,
                   std::vector<std::byte>& native) {
  const std::size_t first = task * job.groups_a_task, count = std::min(job.groups_a_task, job.groups - first);
  const std::size_t begin = first * quant::kX16Rows, end = begin + count * quant::kX16Rows;
  native.resize(std::max(native.size(), (end - begin) * job.row_bytes));
  for (std::size_t row = begin; row < end;) {
    const std::uint64_t at = job.row(row);
    std::size_t run = 1;
    while (at != kPadding && row + run < end && job.row(row + run) == at + run * job.row_bytes) ++run;
    if (at != kPadding) model.read(at, {native.data() + (row - begin) * job.row_bytes, run * job.row_bytes});
    row += run;
  }
  const auto row_of = [&](std::size_t row) -> const std::byte* {
    return job.row(row) == kPadding ? nullptr : native.data() + (row - begin) * job.row_bytes;
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
        read_native(job, model_);
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
    auto& job = jobs.emplace_back(make_job(weight, model.bytes(), weights, weights_bytes));
    job.first_task = tasks;
    tasks += job.pack ? (job.groups + job.groups_a_task - 1) / job.groups_a_task : 1;
    for (const auto& source : weight.sources) read += source->bytes;
  }
  Loading loading(std::move(jobs), model, kernels, pool.size());
  pool.run(tasks, loading);
  loading.rethrow();
  return read;
}

}  // namespace forge::runtime
