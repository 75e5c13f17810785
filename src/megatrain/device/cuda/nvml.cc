#include "megatrain/device/cuda/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <vector>

namespace megatrain {

namespace {

// The few declarations of nvml.h needed here; its ABI is stable.
using Return = int;
constexpr Return kSuccess = 0;
constexpr unsigned long long kNotAvailable = ~0ULL;
struct ProcessInfo {  // nvmlProcessInfo_t of the _v3 call
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
using Init = Return (*)();
using Shutdown = Return (*)();
using HandleByBusId = Return (*)(const char*, void**);
using RunningProcesses = Return (*)(void*, unsigned int*, ProcessInfo*);

template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

Nvml::Nvml(const std::string& pci_bus_id) {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library_) return;
  const auto init = find<Init>(library_, "nvmlInit_v2");
  const auto handle = find<HandleByBusId>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (!init || !handle || init() != kSuccess) {
    dlclose(library_);
    library_ = nullptr;
    return;
  }
  if (handle(pci_bus_id.c_str(), &device_) != kSuccess) device_ = nullptr;
}

Nvml::~Nvml() {
  if (!library_) return;
  if (const auto shutdown = find<Shutdown>(library_, "nvmlShutdown")) shutdown();
  dlclose(library_);
}

std::optional<int64_t> Nvml::bytes_of_this_process() const {
  if (!device_) return std::nullopt;
  const auto running = find<RunningProcesses>(library_, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!running) return std::nullopt;
  std::vector<ProcessInfo> processes(256);
  unsigned int count = static_cast<unsigned int>(processes.size());
  if (running(device_, &count, processes.data()) != kSuccess) return std::nullopt;
  const auto self = static_cast<unsigned int>(getpid());
  for (unsigned int i = 0; i < count; ++i) {
    if (processes[i].pid == self && processes[i].used_bytes != kNotAvailable) {
      return static_cast<int64_t>(processes[i].used_bytes);
    }
  }
  return std::nullopt;
}

}  // namespace megatrain
