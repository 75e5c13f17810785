#include "megatrain/device/cuda/cuda_stream.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstring>
#include <new>

#include "megatrain/base/error.h"
#include "megatrain/device/cuda/check.h"

namespace megatrain {

namespace {

// The driver function, looked up through the runtime so that nothing links against the driver.
PFN_cuStreamWaitValue32_v11070 wait_value_call() {
  static const PFN_cuStreamWaitValue32_v11070 call = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess || !found) {
      fail_internal("the GPU driver has no cuStreamWaitValue32 of CUDA 12: update the driver");
    }
    return reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(found);
  }();
  return call;
}

}  // namespace

CudaEvent::CudaEvent() { CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventBlockingSync)); }
CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }
void CudaEvent::block() { CUDA_CHECK(cudaEventSynchronize(event_)); }
bool CudaEvent::reached() const { return cudaEventQuery(event_) != cudaErrorNotReady; }

FlagPool::~FlagPool() {
  for (void* page : pages_) cudaFreeHost(page);
}

FlagPool::Flag FlagPool::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    void* page = nullptr;
    CUDA_CHECK(cudaHostAlloc(&page, kPageBytes, cudaHostAllocPortable | cudaHostAllocMapped));
    pages_.push_back(page);
    void* device = nullptr;
    CUDA_CHECK(cudaHostGetDevicePointer(&device, page, 0));
    for (size_t offset = 0; offset < kPageBytes; offset += kFlagBytes) {
      auto* host = new (static_cast<std::byte*>(page) + offset) std::atomic<uint32_t>(0);
      free_.push_back({host, reinterpret_cast<uint64_t>(device) + offset});
    }
  }
  const Flag flag = free_.back();
  free_.pop_back();
  flag.host->store(0);
  return flag;
}

void FlagPool::give_back(Flag flag) {
  std::lock_guard lock(mutex_);
  free_.push_back(flag);
}

CudaStream::CudaStream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
CudaStream::~CudaStream() { cudaStreamDestroy(stream_); }

void CudaStream::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
}

void CudaStream::zero(void* to, size_t bytes) {
  if (bytes > 0) CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, stream_));
}

void CudaStream::record(Event& event) {
  auto* own = dynamic_cast<CudaEvent*>(&event);
  ensure(own != nullptr, "a CUDA stream records events of make_event()");
  CUDA_CHECK(cudaEventRecord(own->native(), stream_));
}

void CudaStream::wait(Event& event) {
  if (auto* own = dynamic_cast<CudaEvent*>(&event)) {
    CUDA_CHECK(cudaStreamWaitEvent(stream_, own->native(), 0));
    return;
  }
  auto* host = dynamic_cast<CudaHostEvent*>(&event);
  ensure(host != nullptr, "a CUDA stream waits for events of its own device");
  const CUresult status =
      wait_value_call()(reinterpret_cast<CUstream>(stream_), static_cast<CUdeviceptr>(host->device_flag()),
                        host->ticket(), CU_STREAM_WAIT_VALUE_GEQ);
  if (status != CUDA_SUCCESS) {
    fail_internal("cuStreamWaitValue32 failed with driver error " + std::to_string(static_cast<int>(status)));
  }
}

void CudaStream::synchronize() { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

void CudaStream::check() {
  const cudaError_t status = cudaStreamQuery(stream_);
  if (status != cudaErrorNotReady) CUDA_CHECK(status);
}

cudaStream_t native_stream(Stream& stream) {
  auto* own = dynamic_cast<CudaStream*>(&stream);
  ensure(own != nullptr, "CUDA work is given to a stream of the CUDA device");
  return own->native();
}

}  // namespace megatrain
