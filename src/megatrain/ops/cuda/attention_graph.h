// cuDNN's fused attention over documents of one length, over documents of up to a length that lie anywhere, or over a
// tile of one's queries by a tile of its keys, bf16: a graph for each case, built once and kept.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

namespace megatrain {

// Tensors of both directions. Those before kStats hold heads of tokens; kStats the log-sum-exps in fp32: (documents,
// heads, length), in ragged calls (tokens, heads).
enum AttentionTensor : int { kQ, kK, kV, kOut, kGradOut, kGradQ, kGradK, kGradV, kStats, kAttentionTensors };

inline bool is_key(int tensor) { return tensor == kK || tensor == kV || tensor == kGradK || tensor == kGradV; }
inline bool is_used(int tensor, bool backward) { return backward || tensor < kGradOut || tensor == kStats; }

using AttentionStrides = std::array<int64_t, kAttentionTensors>;  // of a token, by tensor; of kStats in ragged calls

// All that a graph depends on.
struct AttentionCase {
  bool backward;
  int64_t documents;  // of one call
  int64_t length;     // tokens of a document, or queries of a tile
  int64_t keys;       // the same, or keys of a tile
  bool masked;        // query i sees key j only where j <= i, and within the window; false: every query sees every key
  int64_t heads;      // of one call
  int64_t kv_heads;   // of one call
  int64_t head_dim;
  int64_t window;  // 0: unlimited
  float scale;
  AttentionStrides strides;  // 0 for tensors the direction has not
  bool ragged = false;       // each document has a place and a length of its own, the latter up to `length`
  auto operator<=>(const AttentionCase&) const = default;
};

class AttentionGraphs {
 public:
  AttentionGraphs();
  ~AttentionGraphs();
  AttentionGraphs(const AttentionGraphs&) = delete;
  AttentionGraphs& operator=(const AttentionGraphs&) = delete;

  // Bytes of workspace; kRefused when cuDNN does not take the case.
  static constexpr int64_t kRefused = -1;
  int64_t workspace(const AttentionCase& c);

  // Builds the graphs of these cases at once, in threads: cuDNN compiles a kernel for each.
  void prepare(const std::vector<AttentionCase>& cases);

  // Of a case that is not refused. `data` holds the direction's tensors, from their first token where the case is
  // ragged; `places` is then device memory: (kAttentionTensors, documents + 1) elements before each document's first
  // token in every tensor, the last of each row of no use, then (documents) tokens.
  void execute(const AttentionCase& c, const std::array<void*, kAttentionTensors>& data, void* workspace,
               cudaStream_t stream, int32_t* places = nullptr);
  static int64_t places_count(int64_t documents) { return kAttentionTensors * (documents + 1) + documents; }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain
