// The time of each kernel of the gated delta rule, in bf16 with the heads of Qwen3.5-9B: 4 documents of 1024 tokens,
// which make one segment. After build/cuda is complete:
//
//   bench/gpu/delta_kernels
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "megatrain/ops/cuda/delta/narrow_kernels.h"
#include "megatrain/ops/cuda/delta/segment_kernels.h"
#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {
namespace {

constexpr int kDocuments = 4, kChunks = 16, kHeads = 32, kKeyHeads = 16, kDim = 128, kRepeat = 20;
constexpr int64_t kTokens = int64_t{kDocuments} * kChunks * kDeltaChunk;

void* device_memory(int64_t bytes) {
  void* memory = nullptr;
  CUDA_CHECK(cudaMalloc(&memory, static_cast<size_t>(bytes)));
  CUDA_CHECK(cudaMemset(memory, 0, static_cast<size_t>(bytes)));
  return memory;
}

// Rows of one kind of number; the kernels' times do not depend on which.
DeltaRows bf16_rows(int64_t columns) {
  std::vector<uint16_t> values(static_cast<size_t>(kTokens * columns));
  for (uint16_t& value : values) {
    const float x = static_cast<float>(std::rand()) / static_cast<float>(RAND_MAX) - 0.5f;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    value = static_cast<uint16_t>(bits >> 16);
  }
  const auto bytes = static_cast<int64_t>(values.size()) * 2;
  void* memory = device_memory(bytes);
  CUDA_CHECK(cudaMemcpy(memory, values.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  return {memory, columns};
}
DeltaRows gate_rows(float value) {
  const std::vector<float> values(static_cast<size_t>(kTokens * kHeads), value);
  void* memory = device_memory(kTokens * kHeads * 4);
  CUDA_CHECK(cudaMemcpy(memory, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
  return {memory, kHeads};
}
float* scratch(int64_t of_chunk) {
  return static_cast<float*>(device_memory(int64_t{kDocuments} * kChunks * kHeads * of_chunk * 4));
}

DeltaKernelArgs make_args(bool narrow) {
  DeltaKernelArgs args{};
  args.chunks = kDocuments * kChunks;
  args.heads = kHeads;
  args.group = kHeads / kKeyHeads;
  args.key_dim = args.value_dim = kDim;
  args.packed = true;
  for (int i = 0; i < args.chunks; ++i)
    args.places[i] = {.row = static_cast<int32_t>(i * kDeltaChunk),
                      .tokens = static_cast<int32_t>(kDeltaChunk),
                      .first = i % kChunks == 0,
                      .last = i % kChunks == kChunks - 1};
  for (DeltaRows* keys : {&args.q, &args.k, &args.grad_q, &args.grad_k}) *keys = bf16_rows(kKeyHeads * kDim);
  for (DeltaRows* values : {&args.v, &args.out, &args.grad_out, &args.grad_v}) *values = bf16_rows(kHeads * kDim);
  args.g = gate_rows(-0.02f);
  for (DeltaRows* gates : {&args.beta, &args.grad_g, &args.grad_beta}) *gates = gate_rows(0.5f);
  for (float** keys : {&args.w, &args.grad_keys}) *keys = scratch(kDeltaChunk * kDim);
  for (float** values : {&args.d, &args.grad_d}) *values = scratch(kDeltaChunk * kDim);
  for (float** states : {&args.states, &args.grad_states}) *states = scratch(kDim * kDim);
  args.inverse = scratch(kDeltaChunk * kDeltaChunk);
  args.narrow = narrow && delta_is_narrow(args);
  return args;
}

template <class Launch>
double time_us(const char* name, const Launch& launch) {
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  launch();
  CUDA_CHECK(cudaEventRecord(begin));
  for (int i = 0; i < kRepeat; ++i) launch();
  CUDA_CHECK(cudaEventRecord(end));
  CUDA_CHECK(cudaEventSynchronize(end));
  float ms = 0;
  CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
  const double us = 1e3 * static_cast<double>(ms) / kRepeat;
  std::printf("  %-13s %8.1f us\n", name, us);
  return us;
}

void time_kernels(bool narrow) {
  DeltaKernelArgs args = make_args(narrow);
  std::printf("%s, %lld tokens:\n", args.narrow ? "operands in bf16" : "operands in tf32",
              static_cast<long long>(kTokens));
  constexpr DType kType = DType::bf16;
  double forward = 0, backward = 0;
  const double prepare = time_us("prepare", [&] { launch_delta_prepare(args, kType, nullptr); });
  const double scan = time_us("scan", [&] { launch_delta_scan(args, true, kType, nullptr); });
  forward = prepare + scan + time_us("output", [&] { launch_delta_output(args, kType, nullptr); });
  backward = prepare + scan + time_us("output back", [&] { launch_delta_output_back(args, kType, nullptr); });
  backward += time_us("scan back", [&] { launch_delta_scan_back(args, kType, nullptr); });
  backward += time_us("gradient", [&] { launch_delta_gradient(args, kType, nullptr); });
  backward += time_us("key gradient", [&] { launch_delta_key_gradient(args, kType, nullptr); });
  std::printf("  %-13s %8.1f us\n  %-13s %8.1f us\n", "all forward", forward, "all backward", backward);
}

}  // namespace
}  // namespace megatrain

int main() {
  megatrain::time_kernels(false);
  megatrain::time_kernels(true);
}
