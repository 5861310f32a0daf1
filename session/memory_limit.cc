#include "session/memory_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <limits>
#include <optional>

#include "support/error.h"
#include "support/os/console.h"

namespace forge {
namespace {

constexpr std::int64_t kContextMin = 128;  ///< a smaller context is not suggested

/// The number after `key` in a file of "key: number" lines; with an empty key the number in the first line. nullopt if
/// there is none ("max" in memory.max).
std::optional<std::uint64_t> read_number(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    const auto at = line.find_first_of("0123456789", key.size());
    std::uint64_t value = 0;
    if (at == std::string::npos) return std::nullopt;
    if (std::from_chars(line.data() + at, line.data() + line.size(), value).ec != std::errc{}) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

/// Bytes left under the limits of this process's control group and its ancestors; nullopt without a limit (source:
/// Linux admin-guide/cgroup-v2). memory.current includes page cache, which the kernel drops when memory is short, so
/// it does not count as used here.
std::optional<std::uint64_t> control_group_room() {
  std::ifstream in("/proc/self/cgroup");
  std::string line, group;
  while (std::getline(in, line))
    if (line.starts_with("0::")) group = line.substr(3);
  std::optional<std::uint64_t> room;
  while (!group.empty()) {
    const std::string folder = "/sys/fs/cgroup" + (group == "/" ? std::string() : group);
    const auto limit = read_number(folder + "/memory.max", "");
    const auto used = read_number(folder + "/memory.current", "");
    if (limit && used) {
      const auto cache = read_number(folder + "/memory.stat", "inactive_file ").value_or(0) +
                         read_number(folder + "/memory.stat", "active_file ").value_or(0);
      const auto taken = *used - std::min(*used, cache);
      const auto free = *limit - std::min(*limit, taken);
      room = std::min(room.value_or(free), free);
    }
    if (group == "/") break;
    group.resize(group.rfind('/'));
    if (group.empty()) group = "/";
  }
  return room;
}

std::optional<std::uint64_t> address_space_room() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto pages = read_number("/proc/self/statm", "").value_or(0);
  const std::uint64_t used = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used);
}

}  // namespace

MemoryLimit memory_available() {
  MemoryLimit limit{std::numeric_limits<std::uint64_t>::max(), "this machine's memory"};
  const auto consider = [&](std::optional<std::uint64_t> bytes, const char* what) {
    if (bytes && *bytes < limit.bytes) limit = {*bytes, what};
  };
  if (const auto kib = read_number("/proc/meminfo", "MemAvailable:")) consider(*kib * 1024, "this machine's memory");
  consider(control_group_room(), "the control group's limit");
  consider(address_space_room(), "the process's limit (ulimit -v)");
  return limit;
}

std::uint64_t memory_peak() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

std::string describe_need(const runtime::MemoryRequirements& need) {
  auto text = fmt::format("weights {}, KV {}, arena {}, logits {}", human_bytes(need.weights), human_bytes(need.kv),
                          human_bytes(need.arena), human_bytes(need.io));
  if (need.recurrent > 0) text += fmt::format(", recurrent state {}", human_bytes(need.recurrent));
  if (need.staging > 0) text += fmt::format(", staging {}", human_bytes(need.staging));
  return text;
}

void check_memory(const runtime::MemoryRequirements& need, std::int64_t context, std::int64_t sequences,
                  const MemoryLimit& limit, std::int64_t state_slots) {
  if (need.total() <= limit.bytes) return;
  std::string fix = "use a smaller model";
  const std::uint64_t grows = need.kv - need.kv_windows;  // proportional to the context; windows have a fixed size
  const std::uint64_t fixed = need.total() - grows;
  if (fixed < limit.bytes && grows > 0) {
    const double share = static_cast<double>(limit.bytes - fixed) / static_cast<double>(grows);
    const auto fits = static_cast<std::int64_t>(share * 0.95 * static_cast<double>(context)) / 16 * 16;
    if (fits >= kContextMin) fix = fmt::format("a context of {} tokens fits: give -c {}", fits, fits);
  } else if (const std::uint64_t others = need.total() - need.recurrent;
             state_slots > 0 && need.recurrent > 0 && others < limit.bytes) {
    // The recurrent state does not fit; it is the same for every context.
    const auto fits =
        static_cast<std::int64_t>((limit.bytes - others) * static_cast<std::uint64_t>(state_slots) / need.recurrent);
    if (fits >= sequences)
      fix = fmt::format("{} slots of recurrent state fit: give --state-slots {}", fits, fits);
    else if (fits > 0)
      fix = fmt::format("the recurrent state of {} sequences fits: give --parallel {}", fits, fits);
  }
  throw Error(ErrorCode::kMemory, fmt::format("{} do not fit into memory", human_bytes(need.total())),
              fmt::format("{} for {} of {} tokens; available: {} ({})", describe_need(need),
                          sequences == 1 ? "one sequence" : fmt::format("{} sequences", sequences), context,
                          human_bytes(limit.bytes), limit.what),
              std::move(fix));
}

}  // namespace forge
