// The GPU memory that this process holds according to the driver. NVML is part of the driver, so it is loaded at run
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

class Nvml {
 public:
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Bytes held by this process, its context included. Nothing if the driver cannot tell: no NVML, or other process ids
  // inside a container or virtual machine.
  std::optional<int64_t> bytes_of_this_process() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;  // nvmlDevice_t
};

}  // namespace megatrain
