#pragma once
// forge-bench --roofline: each kernel of a step beside the limits of the card, measured where the card is there; and
// what each kernel would execute, estimated from its code, where it is not.

#include <string>
#include <vector>

#include "support/os/console.h"
#include "tools/bench/bench.h"
#include "tools/cli/records.h"

namespace forge::tools {

/// The kernels of a row's steps, longest first, and their sum, called "all", as the last. Bytes and FLOPs count real
/// rows, and cached positions that attention reads.
[[nodiscard]] std::vector<MeasuredKernel> measured_kernels(const BenchResult& result, const plan::ProgramT& program);

/// A row of the output as a record. Shares are those of the measured rates; NaN where a limit is not known, and the
/// share of the matrix rate also for kernels without FLOPs.
[[nodiscard]] Record measured_record(const BenchResult& result, const std::string& test, const MeasuredKernel& kernel);

/// "limits measured on NVIDIA H200: 4300.0 GB/s read (its driver says 4800.0), 600.0 TFLOP/s of matrix instructions";
/// what is not known is left out.
[[nodiscard]] std::string limits_line(const BenchResult& result);

/// Measures every row of the request with the step timer of --profile, and writes a table line or a record for each
/// kernel. Errors: those of run_bench.
void measure_roofline(const BenchRequest& request, RecordFormat format, Output& output);

/// Writes the same for `target`, which is not there: wave-instructions by class. Rows are decode steps of -b sequences
/// and prefill steps of -p tokens, at each depth. Errors: kUsage for a target that forge does not know or whose code it
/// cannot read, and for steps that the plan has no variant for; kDevice without a disassembler; those of open_model.
void estimate_roofline(const BenchRequest& request, const std::string& target, RecordFormat format, Output& output);

}  // namespace forge::tools
