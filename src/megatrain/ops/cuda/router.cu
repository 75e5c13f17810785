// The router's ops: one warp per token. Lane l owns its experts l, l + 32, ... and its choice l.
#include <cmath>
#include <cstdint>

#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kWarps = 8;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int64_t kMostChoices = 32;
constexpr int64_t kMostExperts = 1024;
constexpr int64_t kChunkPairs = 512;  // pairs sorted by one warp
constexpr int kCountTokens = 64;      // tokens per partial sum of count_experts

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Orders experts by score, equal scores by index, so no two are equal. NaN is the largest, and -0 equals 0.
__device__ int64_t rank_of(float score, int expert) {
  int32_t bits = __float_as_int(score == 0.0f ? 0.0f : score);
  bits = isnan(score) ? 0x7FFFFFFF : bits ^ ((bits >> 31) & 0x7FFFFFFF);
  return static_cast<int64_t>(bits) * (int64_t{1} << 32) - expert;
}
__device__ int expert_of(int64_t rank) { return static_cast<int>(0u - static_cast<uint32_t>(rank)); }

__device__ int64_t warp_max_rank(int64_t x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const int64_t other = __shfl_xor_sync(kAllLanes, x, offset);
    x = other > x ? other : x;
  }
  return x;
}

// For a whole row of logits: softmax is exp(logit - most) / sum.
struct Softmax {
  float most, sum;
};

__device__ Softmax softmax_of(const float* row, int64_t experts, int lane) {
  Softmax softmax{-INFINITY, 0};
  for (int64_t e = lane; e < experts; e += 32) softmax.most = fmaxf(softmax.most, row[e]);
  softmax.most = warp_max(softmax.most);
  for (int64_t e = lane; e < experts; e += 32) softmax.sum += expf(row[e] - softmax.most);
  softmax.sum = warp_sum(softmax.sum);
  return softmax;
}

// The weight of this lane's choice, before scaling, is term / divisor. Lanes without a choice have term 0.
struct ChoiceTerm {
  float term, divisor;
};

__device__ ChoiceTerm term_of(RouterScore score, const float* row, int64_t experts, bool is_choice, float logit,
                              int lane) {
  if (score == RouterScore::sigmoid) {
    const float term = is_choice ? sigmoid(logit) : 0.0f;
    return {term, warp_sum(term) + 1e-20f};
  }
  if (score == RouterScore::softmax_of_all) {
    const Softmax all = softmax_of(row, experts, lane);
    return {is_choice ? expf(logit - all.most) : 0.0f, all.sum};
  }
  const float most = warp_max(is_choice ? logit : -INFINITY);
  const float term = is_choice ? expf(logit - most) : 0.0f;
  return {term, warp_sum(term)};
}

struct Groups {
  int count, kept;
};

// The groups from which a token chooses, as bits. Lane g sums the two largest scores of group g.
__device__ unsigned kept_groups(Groups groups, const float* row, const float* choice_bias, int experts, int lane) {
  const int size = experts / groups.count;
  float first = -INFINITY, second = -INFINITY;
  for (int i = 0; lane < groups.count && i < size; ++i) {
    const int e = lane * size + i;
    const float score = sigmoid(row[e]) + choice_bias[e];
    if (score > first) {
      second = first;
      first = score;
    } else if (score > second) {
      second = score;
    }
  }
  const int64_t rank = lane < groups.count ? rank_of(first + second, lane) : INT64_MIN;
  int64_t last = INT64_MAX;
  unsigned kept = 0;
  for (int j = 0; j < groups.kept; ++j) {
    last = warp_max_rank(rank < last ? rank : INT64_MIN);
    kept |= 1u << expert_of(last);
  }
  return kept;
}

// kPerLane: maximum experts of a lane.
template <int kPerLane>
__global__ void route_kernel(const float* logits, int64_t stride, int64_t tokens, int experts, const float* choice_bias,
                             Groups groups, RouterScore score, float scale, int choices, int32_t* chosen,
                             float* weights) {
  const int lane = threadIdx.x % 32;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (token >= tokens) return;
  const float* row = logits + token * stride;
  const unsigned kept = groups.count > 1 ? kept_groups(groups, row, choice_bias, experts, lane) : 1u;
  const int group_size = experts / groups.count;
  int64_t rank[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = lane + 32 * i;
    if (e < experts && (kept >> (e / group_size) & 1u) != 0) {
      rank[i] = rank_of(choice_bias ? sigmoid(row[e]) + choice_bias[e] : row[e], e);
    } else {
      rank[i] = INT64_MIN;
    }
  }
  int64_t last = INT64_MAX;
  int mine = 0;
  for (int j = 0; j < choices; ++j) {
    int64_t best = INT64_MIN;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (rank[i] < last && rank[i] > best) best = rank[i];
    }
    last = warp_max_rank(best);
    if (lane == j) mine = expert_of(last);
  }
  const bool is_choice = lane < choices;
  const ChoiceTerm weight = term_of(score, row, experts, is_choice, is_choice ? row[mine] : 0.0f, lane);
  if (!is_choice) return;
  chosen[token * choices + lane] = mine;
  weights[token * choices + lane] = weight.term * (scale / weight.divisor);
}

struct RouteSlopes {
  const float* probability;  // (E) or nullptr
  float squared_lse;
  const int32_t* counted;  // (T) or nullptr
};

// Let w = term / divisor, and g the gradient with respect to the scaled weights. The gradient of the logits is, for a
// softmax, scale w (g - <w, g>), where g is 0 for experts that were not chosen. For sigmoids over their sum, it is the
// same times 1 - sigmoid.
template <class T>
__global__ void route_backward_kernel(const float* logits, int64_t stride, int64_t tokens, int experts,
                                      RouterScore score, float scale, int choices, const int32_t* chosen,
                                      const float* grad_weights, RouteSlopes slopes, T* grad_logits,
                                      int64_t grad_stride) {
  const int lane = threadIdx.x % 32;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (token >= tokens) return;
  const float* row = logits + token * stride;
  const bool is_choice = lane < choices, of_all = score == RouterScore::softmax_of_all;
  const int mine = is_choice ? chosen[token * choices + lane] : -1;
  const float logit = is_choice ? row[mine] : 0.0f;
  const float grad_weight = is_choice ? grad_weights[token * choices + lane] : 0.0f;
  const ChoiceTerm weight = term_of(score, row, experts, is_choice, logit, lane);
  const float mean = warp_sum(weight.term * grad_weight) / weight.divisor;
  float grad_choice = weight.term * (scale / weight.divisor) * (of_all ? grad_weight : grad_weight - mean);
  if (score == RouterScore::sigmoid) grad_choice *= sigmoid(-logit);

  const bool losses =
      (!slopes.counted || slopes.counted[token] != 0) && (slopes.probability || slopes.squared_lse != 0);
  Softmax all{0, 1};
  float offset = 0;  // added to the gradient of every expert's probability
  if (of_all || losses) all = softmax_of(row, experts, lane);
  if (of_all) offset -= mean * scale;
  if (losses) offset += 2 * (all.most + logf(all.sum)) * slopes.squared_lse;
  if (losses && slopes.probability) {
    float gemm = 0;
    for (int e = lane; e < experts; e += 32) gemm += expf(row[e] - all.most) * slopes.probability[e];
    offset -= warp_sum(gemm) / all.sum;
  }

  // All lanes of a warp run the same number of rounds, because the shuffles need all of them.
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane;
    float grad = 0;
    if ((of_all || losses) && e < experts) {
      const float slope = losses && slopes.probability ? slopes.probability[e] + offset : offset;
      grad = expf(row[e] - all.most) / all.sum * slope;
    }
    for (int j = 0; j < choices; ++j) {
      const int expert = __shfl_sync(kAllLanes, mine, j);
      const float more = __shfl_sync(kAllLanes, grad_choice, j);
      if (e == expert) grad += more;
    }
    if (e < experts) grad_logits[token * grad_stride + e] = narrow<T>(grad);
  }
}

// The number of a chunk's pairs for each expert: counts[expert * chunks + chunk]. A block is one warp.
__global__ void sort_count_kernel(const int32_t* experts, int64_t pairs, int count, int32_t* counts) {
  extern __shared__ int32_t mine[];  // (count)
  const int lane = threadIdx.x;
  for (int e = lane; e < count; e += 32) mine[e] = 0;
  __syncwarp();
  const int64_t begin = blockIdx.x * kChunkPairs;
  const int64_t end = begin + kChunkPairs < pairs ? begin + kChunkPairs : pairs;
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t pair = first + lane;
    const int expert = pair < end ? experts[pair] : -1;
    const unsigned same = __match_any_sync(kAllLanes, expert);
    if (expert >= 0 && lane == __ffs(static_cast<int>(same)) - 1) mine[expert] += __popc(same);
    __syncwarp();
  }
  for (int e = lane; e < count; e += 32) counts[static_cast<int64_t>(e) * gridDim.x + blockIdx.x] = mine[e];
}

__device__ int32_t warp_sum_up_to(int32_t x, int lane) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int32_t below = __shfl_up_sync(kAllLanes, x, offset);
    if (lane >= offset) x += below;
  }
  return x;
}

// An exclusive prefix sum of values[0, count) by a whole warp. Returns the total.
__device__ int32_t sum_before(int32_t* values, int64_t count, int lane) {
  int32_t total = 0;
  for (int64_t first = 0; first < count; first += 32) {
    const int64_t i = first + lane;
    const int32_t value = i < count ? values[i] : 0;
    const int32_t up_to = warp_sum_up_to(value, lane);
    if (i < count) values[i] = total + up_to - value;
    total += __shfl_sync(kAllLanes, up_to, 31);
  }
  return total;
}

// A block is one warp and one expert: counts how many of its pairs are in earlier chunks, and in all.
__global__ void sort_chunks_kernel(int32_t* counts, int64_t chunks, int32_t* begin) {
  const int32_t total = sum_before(counts + blockIdx.x * chunks, chunks, threadIdx.x);
  if (threadIdx.x == 0) begin[blockIdx.x] = total;
}

// A single warp.
__global__ void sort_begin_kernel(int32_t* begin, int64_t count) {
  const int32_t total = sum_before(begin, count, threadIdx.x);
  if (threadIdx.x == 0) begin[count] = total;
}

// A block is one warp and one chunk, as in sort_count_kernel.
__global__ void sort_place_kernel(const int32_t* experts, int64_t pairs, int count, const int32_t* counts,
                                  const int32_t* begin_of, int32_t* pair_of_row, int32_t* row_of_pair) {
  extern __shared__ int32_t next[];  // (count) the row of each expert's next pair
  const int lane = threadIdx.x;
  for (int e = lane; e < count; e += 32)
    next[e] = begin_of[e] + counts[static_cast<int64_t>(e) * gridDim.x + blockIdx.x];
  __syncwarp();
  const int64_t begin = blockIdx.x * kChunkPairs;
  const int64_t end = begin + kChunkPairs < pairs ? begin + kChunkPairs : pairs;
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t pair = first + lane;
    const int expert = pair < end ? experts[pair] : -1;
    const unsigned same = __match_any_sync(kAllLanes, expert);
    const int before = __popc(same & ((1u << lane) - 1));
    const int32_t row = expert >= 0 ? next[expert] + before : 0;
    __syncwarp();
    if (expert >= 0 && before == 0) next[expert] += __popc(same);
    __syncwarp();
    if (expert < 0) continue;
    pair_of_row[row] = static_cast<int32_t>(pair);
    row_of_pair[pair] = row;
  }
}

// One block counts kCountTokens tokens: partials[block][e] is the sum of expert e's probabilities, token by token, and
// partials[block][E] the sum of the squared log-sum-exps.
__global__ void count_kernel(const float* logits, int64_t stride, int64_t tokens, int experts, const int32_t* chosen,
                             int choices, const int32_t* counted, unsigned long long* choice_counts,
                             unsigned long long* tokens_counted, double* partials) {
  extern __shared__ int32_t counts[];  // (choices, experts)
  __shared__ float most[kCountTokens], sum[kCountTokens];
  __shared__ bool counts_token[kCountTokens];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kCountTokens;
  const int here = static_cast<int>(begin + kCountTokens < tokens ? kCountTokens : tokens - begin);
  for (int i = threadIdx.x; i < choices * experts; i += blockDim.x) counts[i] = 0;
  for (int t = warp; t < here; t += kWarps) {
    const bool is_counted = !counted || counted[begin + t] != 0;
    const Softmax softmax = softmax_of(logits + (begin + t) * stride, experts, lane);
    if (lane > 0) continue;
    counts_token[t] = is_counted;
    most[t] = softmax.most;
    sum[t] = softmax.sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < here * choices; i += blockDim.x) {
    if (counts_token[i / choices]) atomicAdd(&counts[i % choices * experts + chosen[begin * choices + i]], 1);
  }
  double* partial = partials + static_cast<int64_t>(blockIdx.x) * (experts + 1);
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    double total = 0;
    for (int t = 0; t < here; ++t) {
      if (!counts_token[t]) continue;
      total += static_cast<double>(expf(logits[(begin + t) * stride + e] - most[t])) / static_cast<double>(sum[t]);
    }
    partial[e] = total;
  }
  if (threadIdx.x == 0) {
    double total = 0;
    unsigned long long all = 0;
    for (int t = 0; t < here; ++t) {
      if (!counts_token[t]) continue;
      const double lse = static_cast<double>(most[t]) + log(static_cast<double>(sum[t]));
      total += lse * lse;
      ++all;
    }
    partial[experts] = total;
    if (all > 0) atomicAdd(tokens_counted, all);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < choices * experts; i += blockDim.x) {
    if (counts[i] != 0) atomicAdd(&choice_counts[i], static_cast<unsigned long long>(counts[i]));
  }
}

__global__ void count_sums_kernel(const double* partials, int64_t count, int experts, double* probability,
                                  double* squared_lse) {
  const int e = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (e > experts) return;
  double total = 0;
#pragma unroll 8
  for (int64_t p = 0; p < count; ++p) total += partials[p * (experts + 1) + e];
  *(e < experts ? probability + e : squared_lse) += total;
}

__global__ void balance_slopes_kernel(BalanceSlopes args) {
  const int64_t expert = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (expert >= args.experts) return;
  int64_t chosen = 0;
  for (int64_t layer = 0; layer < args.layers; ++layer) {
    const int64_t* counts = args.choice_counts + layer * args.stride + expert;
    for (int64_t j = 0; j < args.choices; ++j) chosen += counts[j * args.experts];
  }
  args.slopes[expert] = static_cast<float>(args.factor * static_cast<double>(chosen));
}

void check_router(const View& logits, int64_t choices) {
  ensure(logits.dtype == DType::f32, "a router's logits are fp32");
  ensure(choices > 0 && choices <= kMostChoices && choices <= logits.cols,
         "a token chooses distinct experts, at most 32");
  ensure(logits.cols <= kMostExperts, "a router has at most 1024 experts");
}

int64_t sort_chunks(int64_t pairs) { return pairs > 0 ? ceil_div(pairs, kChunkPairs) : 1; }

}  // namespace

void launch(const Route& args, cudaStream_t stream) {
  check_router(args.logits, args.choices);
  ensure(args.choice_bias.empty() || args.score == RouterScore::sigmoid, "a choice's bias is of sigmoid scores");
  ensure(args.groups == 1 || (!args.choice_bias.empty() && args.groups <= 32 && args.kept_groups <= args.groups &&
                              args.logits.cols % args.groups == 0 && args.logits.cols / args.groups >= 2 &&
                              args.kept_groups * (args.logits.cols / args.groups) >= args.choices),
         "groups are of scores with a bias, at most 32 of at least two experts, and those that are kept have enough");
  if (args.logits.rows == 0) return;
  const auto run = [&]<int kPerLane>() {
    route_kernel<kPerLane><<<grid_size(ceil_div(args.logits.rows, kWarps)), 32 * kWarps, 0, stream>>>(
        args.logits.as<float>(), args.logits.row_stride, args.logits.rows, static_cast<int>(args.logits.cols),
        args.choice_bias.as<float>(), Groups{static_cast<int>(args.groups), static_cast<int>(args.kept_groups)},
        args.score, args.scale, static_cast<int>(args.choices), args.experts, args.weights);
  };
  const int64_t experts = args.logits.cols;
  if (experts <= 64) {
    run.template operator()<2>();
  } else if (experts <= 128) {
    run.template operator()<4>();
  } else if (experts <= 256) {
    run.template operator()<8>();
  } else if (experts <= 512) {
    run.template operator()<16>();
  } else {
    run.template operator()<kMostExperts / 32>();
  }
  check_launch();
}

void launch(const RouteBackward& args, cudaStream_t stream) {
  check_router(args.logits, args.choices);
  if (args.logits.rows == 0) return;
  const RouteSlopes slopes{args.grad_probability.as<float>(), args.grad_squared_lse, args.counted};
  visit_elements(args.grad_logits.dtype, [&](auto element) {
    using T = decltype(element);
    route_backward_kernel<T><<<grid_size(ceil_div(args.logits.rows, kWarps)), 32 * kWarps, 0, stream>>>(
        args.logits.as<float>(), args.logits.row_stride, args.logits.rows, static_cast<int>(args.logits.cols),
        args.score, args.scale, static_cast<int>(args.choices), args.experts, args.grad_weights, slopes,
        args.grad_logits.as<T>(), args.grad_logits.row_stride);
  });
  check_launch();
}

int64_t sort_scratch_bytes(const SortByExpert& args) {
  return sort_chunks(args.pairs) * args.count * static_cast<int64_t>(sizeof(int32_t));
}

void launch(const SortByExpert& args, void* scratch, cudaStream_t stream) {
  ensure(args.count > 0 && args.count <= kMostExperts, "pairs are sorted by at most 1024 experts");
  ensure(args.pairs < (int64_t{1} << 31), "a micro-batch has less than 2^31 choices");
  int32_t* counts = static_cast<int32_t*>(scratch);
  const int64_t chunks = sort_chunks(args.pairs);
  const int count = static_cast<int>(args.count);
  const size_t shared = static_cast<size_t>(args.count) * sizeof(int32_t);
  sort_count_kernel<<<grid_size(chunks), 32, shared, stream>>>(args.experts, args.pairs, count, counts);
  sort_chunks_kernel<<<grid_size(args.count), 32, 0, stream>>>(counts, chunks, args.begin);
  sort_begin_kernel<<<1, 32, 0, stream>>>(args.begin, args.count);
  sort_place_kernel<<<grid_size(chunks), 32, shared, stream>>>(args.experts, args.pairs, count, counts, args.begin,
                                                               args.pair_of_row, args.row_of_pair);
  check_launch();
}

int64_t count_scratch_bytes(const CountExperts& args) {
  return ceil_div(args.logits.rows, kCountTokens) * (args.logits.cols + 1) * static_cast<int64_t>(sizeof(double));
}

void launch(const CountExperts& args, void* scratch, cudaStream_t stream) {
  check_router(args.logits, args.choices);
  if (args.logits.rows == 0) return;
  double* partials = static_cast<double*>(scratch);
  const int64_t blocks = ceil_div(args.logits.rows, kCountTokens);
  const int experts = static_cast<int>(args.logits.cols);
  const int64_t shared = args.choices * args.logits.cols * static_cast<int64_t>(sizeof(int32_t));
  if (shared > 40 * 1024) {
    CUDA_CHECK(
        cudaFuncSetAttribute(count_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  }
  static_assert(sizeof(int64_t) == sizeof(unsigned long long));
  count_kernel<<<grid_size(blocks), 32 * kWarps, static_cast<size_t>(shared), stream>>>(
      args.logits.as<float>(), args.logits.row_stride, args.logits.rows, experts, args.experts,
      static_cast<int>(args.choices), args.counted, reinterpret_cast<unsigned long long*>(args.choice_counts),
      reinterpret_cast<unsigned long long*>(args.tokens), partials);
  check_launch();
  count_sums_kernel<<<grid_size(ceil_div(experts + 1, 64)), 64, 0, stream>>>(partials, blocks, experts,
                                                                             args.probability, args.squared_lse);
  check_launch();
}

void launch(const BalanceSlopes& args, cudaStream_t stream) {
  balance_slopes_kernel<<<grid_size(ceil_div(args.experts, 64)), 64, 0, stream>>>(args);
  check_launch();
}

}  // namespace megatrain
