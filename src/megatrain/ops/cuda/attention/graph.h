// cuDNN's fused attention in bf16, one graph per case, built once and kept. A case is documents of one length,
// documents of up to a length at arbitrary places, or a tile of one document's queries by a tile of its keys.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

namespace megatrain {

// Tensors of both directions. Those before kStats hold heads of tokens. kStats holds the log-sum-exps in fp32:
// (documents, heads, length), in ragged calls (tokens, heads).
enum AttentionTensor : int { kQ, kK, kV, kOut, kGradOut, kGradQ, kGradK, kGradV, kStats, kAttentionTensors };

inline bool is_key(int tensor) { return tensor == kK || tensor == kV || tensor == kGradK || tensor == kGradV; }
inline bool is_used(int tensor, bool backward) { return backward || tensor < kGradOut || tensor == kStats; }

// Elements per token of each tensor; that of kStats is used only in ragged calls.
using AttentionStrides = std::array<int64_t, kAttentionTensors>;

// Everything that a graph depends on.
struct AttentionCase {
  bool backward;
  int64_t documents;  // per call
  int64_t length;     // tokens of a document, or queries of a tile
  int64_t keys;       // the same, or keys of a tile
  bool masked;        // query i sees key j only if j <= i and within the window; false: sees every key
  int64_t heads;      // per call
  int64_t kv_heads;   // per call
  int64_t head_dim;
  int64_t window;  // 0: unlimited
  float scale;
  AttentionStrides strides;  // 0 for tensors that the direction does not use
  bool ragged = false;       // each document has its own place and its own length of up to `length`
  auto operator<=>(const AttentionCase&) const = default;
};

class AttentionGraphs {
 public:
  AttentionGraphs();
  ~AttentionGraphs();
  AttentionGraphs(const AttentionGraphs&) = delete;
  AttentionGraphs& operator=(const AttentionGraphs&) = delete;

  // Bytes of workspace; kRefused if cuDNN does not support the case.
  static constexpr int64_t kRefused = -1;
  int64_t workspace(const AttentionCase& c);

  // Builds the graphs of these cases in parallel threads, because cuDNN compiles a kernel for each.
  void prepare(const std::vector<AttentionCase>& cases);

  // The case must not be refused. `data` has the direction's tensors; in a ragged case they start at their first token.
  // `places` is then device memory. It has (kAttentionTensors, documents + 1) offsets in elements, one for each
  // document's first token in every tensor; the last of each row is unused. After them come (documents) token counts.
  void execute(const AttentionCase& c, const std::array<void*, kAttentionTensors>& data, void* workspace,
               cudaStream_t stream, int32_t* places = nullptr);
  static int64_t places_count(int64_t documents) { return kAttentionTensors * (documents + 1) + documents; }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain
