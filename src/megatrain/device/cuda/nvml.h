// What the driver says this process holds on a GPU. NVML is loaded at run time: it belongs to the driver, not to us.
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

  // Bytes held by this process, its context included; nothing where the driver will not say (no NVML, other process
  // numbers inside a container or a virtual machine).
  std::optional<int64_t> bytes_of_this_process() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;  // nvmlDevice_t
};

}  // namespace megatrain
