// Every CUDA, cuBLAS and cuDNN call goes through CUDA_CHECK, which throws with the expression, its location and the
// reason.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>

#include "megatrain/base/error.h"

namespace megatrain {

inline bool cuda_succeeded(cudaError_t status) { return status == cudaSuccess; }
inline bool cuda_succeeded(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }
inline bool cuda_succeeded(cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS; }
inline const char* cuda_reason(cudaError_t status) { return cudaGetErrorString(status); }
inline const char* cuda_reason(cublasStatus_t status) { return cublasLtGetStatusString(status); }
inline const char* cuda_reason(cudnnStatus_t status) { return cudnnGetErrorString(status); }

template <class Status>
void cuda_check(Status status, const char* expression, const char* file, int line) {
  if (cuda_succeeded(status)) return;
  const std::string path = file;
  fail_internal(std::string("CUDA call failed: ") + cuda_reason(status) + " in " + expression + " at " +
                path.substr(path.rfind('/') + 1) + ":" + std::to_string(line));
}

}  // namespace megatrain

#define CUDA_CHECK(expression) ::megatrain::cuda_check((expression), #expression, __FILE__, __LINE__)
