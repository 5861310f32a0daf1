#pragma once
// forge-bench --tune, the search: which kernel choices (codegen/gpu/tuning.h) are the fastest for each matmul of a
// model's steps. It knows no GPU: a TuneMeasurer times what it asks for.
//
// A site is a matmul's shape and the rows of results of its step: "4096x14336x1". A tuning can set each site apart, and
// a profile times each site apart, so one measurement tries a candidate for every site at once, and the number of
// measurements does not grow with the sites:
//
//   groups of keys, in this order      1            2         3        4
//   dot products (MatmulRows)          waves split  units     rows
//   strips (MatmulStrips)              block, waves k_splits  ahead    stages
//   tiles (MatmulTiles)                block        k_splits  waves    slabs stages, min_blocks
//
// Each group keeps the best of its candidates for a site before the next begins (coordinate descent). At the end whole
// workloads are measured with the choices and without; those of a workload that does not gain are dropped.

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

/// The kernel that multiplies a site.
enum class TuneKind : std::uint8_t { kDots, kStrips, kTiles };

/// Median of some repetitions, and the median of their distances from it, in seconds.
struct Timing {
  double median = 0, noise = 0;
};
[[nodiscard]] Timing timing_of(std::vector<double> seconds);

struct TuneSite {
  std::int64_t rows = 0, k = 0, tokens = 0;  ///< the weights' shape; rows of results of a step
  TuneKind kind = TuneKind::kDots;
  bool experts = false;      ///< weights of several experts, of which each token takes some
  bool beside = false;       ///< another matmul shares its launch, so it cannot be timed apart
  std::size_t workload = 0;  ///< in which it takes the most time
  Timing time;               ///< of all its calls in a repetition of the workload
  std::string kernels;       ///< names of its kernels, which differ if their code does
  /// "4096x14336x1", as in keys of a tuning.
  [[nodiscard]] std::string name() const;
};
/// The site that a kernel's name ("matmul_q4_k_4096x14336_t1_...") tells, without times; both of two matmuls in one
/// launch; none for other kernels.
[[nodiscard]] std::vector<TuneSite> sites_of_kernel(std::string_view kernel);

/// Site names and what they took.
using TuneProfile = std::map<std::string, TuneSite>;

/// A workload without the profile's events.
struct TuneWhole {
  Timing time;
  std::vector<float> logits;  ///< after fixed tokens, to compare with those of other choices
};

/// Times a model with a tuning. An expected error is the reason why the tuning cannot be used.
class TuneMeasurer {
 public:
  TuneMeasurer() = default;
  TuneMeasurer(const TuneMeasurer&) = delete;
  TuneMeasurer& operator=(const TuneMeasurer&) = delete;
  virtual ~TuneMeasurer() = default;
  virtual std::expected<TuneProfile, std::string> profile(const std::string& tune) = 0;
  /// One entry per workload.
  virtual std::expected<std::vector<TuneWhole>, std::string> whole(const std::string& tune) = 0;
  /// Seconds since the start.
  [[nodiscard]] virtual double seconds() = 0;
};

/// What of the target decides which candidates there are.
struct TuneTarget {
  int wave = 32;
  bool mma = false;     ///< its matrix instructions are mma.sync
  bool copies = false;  ///< it copies asynchronously
};

struct TuneLimits {
  double seconds = 110;        ///< the search ends in time for the last measurements to fit
  double gain_least = 0.02;    ///< by which a candidate must be faster, besides the noise
  double whole_least = 0.005;  ///< the same for a workload
  double share_least = 0.01;   ///< sites that take less of their workload's matmuls keep the cost model's choices
};

/// Settings of a site: values by key.
using TuneSettings = std::map<std::string, std::int64_t>;
/// The candidates of a group of keys for a site; empty behind the last group, and where a group has none for the site.
[[nodiscard]] std::vector<TuneSettings> tune_candidates(const TuneSite& site, std::size_t group,
                                                        const TuneTarget& target);
inline constexpr std::size_t kTuneGroups = 5;

struct TuneResult {
  std::string tune;  ///< the choice; empty: the cost model's is the best
  struct Workload {
    double before = 0, after = 0;  ///< seconds, medians
    std::string dropped;           ///< why its sites keep the cost model's choices; empty: they do not
  };
  std::vector<Workload> workloads;
  std::size_t measurements = 0;  ///< profiles taken
  std::size_t tried = 0;         ///< candidates of sites that were timed
  std::size_t invalid = 0;       ///< that cannot be used
  std::size_t untried = 0;       ///< that the time did not suffice for
};

/// Searches. `told`: gets a line on what is done now. Errors: kDevice if the cost model's own choices cannot be timed.
[[nodiscard]] TuneResult search_tuning(TuneMeasurer& measurer, const TuneTarget& target, const TuneLimits& limits,
                                       const std::function<void(const std::string&)>& told = {});

}  // namespace forge::tools
