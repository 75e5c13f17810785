// One GPU as a device. Host memory is huge pages registered with the driver. Copies run at full link speed, and
// registering touched huge pages is many times faster than allocating pinned memory.
#include <cuda_runtime_api.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/device/cuda/check.h"
#include "megatrain/device/cuda/cuda_stream.h"
#include "megatrain/device/cuda/nvml.h"
#include "megatrain/device/cuda/probe.h"
#include "megatrain/device/device.h"
#include "megatrain/host/arena.h"
#include "megatrain/host/thread_team.h"

namespace megatrain {

namespace {

[[noreturn]] void fail_to_fit(size_t bytes, const std::string& tag, const std::string& where, const char* reason,
                              const Ledger& ledger) {
  fail(ExitCode::cannot_fit, "could not allocate " + format_bytes(static_cast<int64_t>(bytes)) + " of " + where +
                                 " for " + tag + " (" + reason + "); held so far:\n" + ledger.table());
}

std::string pci_bus_id(int device) {
  char text[32] = {};
  CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof(text), device));
  return text;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const cudaDeviceProp& properties) : name_(properties.name), nvml_(pci_bus_id(0)) {}

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return name_; }

  Buffer allocate(size_t bytes, const std::string& tag) override {
    void* data = nullptr;
    const cudaError_t status = bytes == 0 ? cudaSuccess : cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clear the error: the caller may retry with a smaller size
      fail_to_fit(bytes, tag, "GPU memory", "out of memory", ledger_);
    }
    CUDA_CHECK(status);
    ledger_.add(tag, static_cast<int64_t>(bytes));
    return {data, bytes, [this, tag](void* p, size_t n) {
              cudaFree(p);
              ledger_.remove(tag, static_cast<int64_t>(n));
            }};
  }

  Buffer allocate_host(size_t bytes, const std::string& tag) override {
    void* data = map_huge_pages(bytes, static_cast<int>(usable_cpus().size()));
    if (!data && bytes > 0) fail_to_fit(bytes, tag, "host memory", "mmap failed", host_ledger_);
    if (data) {
      const cudaError_t status = cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
      if (status != cudaSuccess) {
        cudaGetLastError();
        unmap_huge_pages(data, bytes);
        fail_to_fit(bytes, tag, "host memory", cudaGetErrorString(status), host_ledger_);
      }
    }
    host_ledger_.add(tag, static_cast<int64_t>(bytes));
    return {data, bytes, [this, tag](void* p, size_t n) {
              cudaHostUnregister(p);
              unmap_huge_pages(p, n);
              host_ledger_.remove(tag, static_cast<int64_t>(n));
            }};
  }

  void copy_now(void* to, const void* from, size_t bytes) override {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread));
    CUDA_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  }
  void zero_now(void* to, size_t bytes) override {
    CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, cudaStreamPerThread));
    CUDA_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  }

  std::unique_ptr<Stream> make_stream(const std::string&) override { return std::make_unique<CudaStream>(); }
  std::unique_ptr<HostStream> make_host_stream(const std::string& name) override { return make_worker_stream(name); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(); }
  std::unique_ptr<Event> make_host_event() override { return std::make_unique<CudaHostEvent>(flags_, flags_.take()); }

  double reached_s(const Event& event) const override {
    if (const auto* host = dynamic_cast<const HostEvent*>(&event))
      return static_cast<double>(host->reached_ns()) * 1e-9;
    return marked_s_ + elapsed_s(*mark_, event);
  }
  void mark_clock() override {
    CudaStream stream;
    if (!mark_) mark_ = std::make_unique<CudaEvent>();
    stream.record(*mark_);
    mark_->block();
    marked_s_ = now_s();
  }

  double elapsed_s(const Event& from, const Event& to) const override {
    const auto* cuda_from = dynamic_cast<const CudaEvent*>(&from);
    const auto* cuda_to = dynamic_cast<const CudaEvent*>(&to);
    if (cuda_from && cuda_to) {
      float milliseconds = 0;
      CUDA_CHECK(cudaEventElapsedTime(&milliseconds, cuda_from->native(), cuda_to->native()));
      return static_cast<double>(milliseconds) * 1e-3;
    }
    return static_cast<double>(dynamic_cast<const HostEvent&>(to).reached_ns() -
                               dynamic_cast<const HostEvent&>(from).reached_ns()) *
           1e-9;
  }

  int64_t memory_total() const override { return memory().second; }
  int64_t memory_free() const override { return memory().first; }
  int64_t memory_used() const override {
    if (const auto bytes = nvml_.bytes_of_this_process()) return *bytes;
    const auto [free, total] = memory();
    return total - free;
  }

 private:
  static std::pair<int64_t, int64_t> memory() {
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  std::string name_;
  Nvml nvml_;
  FlagPool flags_;
  std::unique_ptr<CudaEvent> mark_;  // reached when the host's clock was at marked_s_
  double marked_s_ = 0;
};

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The CUDA runtime reports a missing driver as one that is too old.
std::string why_no_gpu(cudaError_t status) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    return "no NVIDIA driver was found on this machine; this build needs one for CUDA " + cuda_version(runtime);
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is for CUDA " + cuda_version(driver) + " and this build needs one for CUDA " +
           cuda_version(runtime) + ": update the driver";
  }
  return std::string("no usable GPU: ") + cudaGetErrorString(status);
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(std::string* why) {
  const auto refuse = [&](const std::string& sentence) -> std::unique_ptr<Device> {
    cudaGetLastError();
    if (why) *why = sentence;
    return nullptr;
  };
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess && status != cudaErrorNoDevice) return refuse(why_no_gpu(status));
  if (count == 0) return refuse("no GPU was found on this machine");
  cudaDeviceProp properties;
  status = cudaGetDeviceProperties(&properties, 0);
  if (status == cudaSuccess) status = cudaSetDevice(0);
  if (status == cudaSuccess) status = cudaFree(nullptr);  // creates the context
  if (status != cudaSuccess) return refuse(std::string("the GPU could not be opened: ") + cudaGetErrorString(status));
  status = probe_kernels();
  if (status != cudaSuccess) {
    return refuse(std::string("this build has no code for ") + properties.name + " (compute capability " +
                  std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                  "): " + cudaGetErrorString(status) + "; configure with CMAKE_CUDA_ARCHITECTURES=native");
  }
  return std::make_unique<CudaDevice>(properties);
}

}  // namespace megatrain
