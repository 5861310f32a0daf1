#pragma once
// The two layouts of HIP's device properties: the one that hipGetDeviceProperties fills (HIP 4 and 5, as in Debian 12),
// and the one of hipGetDevicePropertiesR0600 (HIP 6 and later). They are declared here because no single release's
// headers have both. Fields that forge does not read are combined into arrays. Source: hipDeviceProp_t in
// hip/hip_runtime_api.h of ROCm 5.2.3 and ROCm 6.x; column_hip.cc compares offsets with the headers of the build.

#include <cstddef>
#include <type_traits>

namespace forge::driver {

/// Layout before HIP 6.
struct HipProperties {
  char name[256];
  std::size_t total_global_mem;
  std::size_t shared_mem_per_block;
  int regs_per_block;
  int warp_size;
  int max_threads_per_block;
  int max_threads_dim[3];
  int max_grid_size[3];
  int clock_rate_khz;
  int memory_clock_rate_khz;
  int memory_bus_width;
  std::size_t total_const_mem;
  int major, minor;
  int multi_processor_count;
  int l2_cache_size;
  int max_threads_per_multi_processor;
  int compute_mode;
  int clock_instruction_rate;
  unsigned arch_flags;
  int concurrent_kernels;
  int pci_domain_id, pci_bus_id, pci_device_id;
  std::size_t max_shared_memory_per_multi_processor;
  int is_multi_gpu_board, can_map_host_memory, gcn_arch;
  char gcn_arch_name[256];
  int integrated;
  std::byte rest[1024];  ///< reserve: larger than in any release before 6
};
static_assert(offsetof(HipProperties, total_global_mem) == 256);
static_assert(offsetof(HipProperties, warp_size) == 276);
static_assert(offsetof(HipProperties, clock_rate_khz) == 308);
static_assert(offsetof(HipProperties, multi_processor_count) == 336);
static_assert(offsetof(HipProperties, pci_domain_id) == 364);
static_assert(offsetof(HipProperties, max_shared_memory_per_multi_processor) == 376);
static_assert(offsetof(HipProperties, gcn_arch_name) == 396);
static_assert(offsetof(HipProperties, integrated) == 652);

/// Layout from HIP 6 on.
struct HipPropertiesR0600 {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_device_node_mask;
  std::size_t total_global_mem;
  std::size_t shared_mem_per_block;
  int regs_per_block;
  int warp_size;
  std::size_t mem_pitch;
  int max_threads_per_block;
  int max_threads_dim[3];
  int max_grid_size[3];
  int clock_rate_khz;
  std::size_t total_const_mem;
  int major, minor;
  std::size_t texture_alignment, texture_pitch_alignment;
  int device_overlap;
  int multi_processor_count;
  int kernel_exec_timeout_enabled;
  int integrated;
  int can_map_host_memory, compute_mode;
  int texture_and_surface_limits[40];
  std::size_t surface_alignment;
  int concurrent_kernels, ecc_enabled;
  int pci_bus_id, pci_device_id, pci_domain_id;
  int tcc_driver, async_engine_count, unified_addressing;
  int memory_clock_rate_khz;
  int memory_bus_width;
  int l2_cache_size;
  int persisting_l2_cache_max_size;
  int max_threads_per_multi_processor;
  int stream_priorities_supported, global_l1_cache_supported, local_l1_cache_supported;
  std::size_t shared_mem_per_multiprocessor;
  int regs_per_multiprocessor;
  int between[11];
  std::size_t shared_mem_per_block_optin;
  int behind_optin[4];
  std::size_t reserved_shared_mem_per_block;
  int behind_reserved[13];
  int reserved[63];
  int hip_reserved[32];
  char gcn_arch_name[256];
  std::size_t max_shared_memory_per_multi_processor;
  int clock_instruction_rate;
  unsigned arch_flags;
  void *hdp_mem_flush_cntl, *hdp_reg_flush_cntl;
  int cooperative_unmatched[4];
  int is_large_bar, asic_revision;
  std::byte later[2048];  ///< reserve for fields that later releases append
};
static_assert(offsetof(HipPropertiesR0600, total_global_mem) == 288);
static_assert(offsetof(HipPropertiesR0600, warp_size) == 308);
static_assert(offsetof(HipPropertiesR0600, clock_rate_khz) == 348);
static_assert(offsetof(HipPropertiesR0600, multi_processor_count) == 388);
static_assert(offsetof(HipPropertiesR0600, integrated) == 396);
static_assert(offsetof(HipPropertiesR0600, pci_bus_id) == 584);
static_assert(offsetof(HipPropertiesR0600, memory_clock_rate_khz) == 608);
static_assert(offsetof(HipPropertiesR0600, max_threads_per_multi_processor) == 624);
static_assert(offsetof(HipPropertiesR0600, shared_mem_per_multiprocessor) == 640);
static_assert(offsetof(HipPropertiesR0600, shared_mem_per_block_optin) == 696);
static_assert(offsetof(HipPropertiesR0600, reserved) == 780);
static_assert(offsetof(HipPropertiesR0600, gcn_arch_name) == 1160);
static_assert(offsetof(HipPropertiesR0600, max_shared_memory_per_multi_processor) == 1416);
static_assert(offsetof(HipPropertiesR0600, later) == 1472);
static_assert(std::is_standard_layout_v<HipProperties> && std::is_standard_layout_v<HipPropertiesR0600>);

}  // namespace forge::driver
