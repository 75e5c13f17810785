// Latent attention (MLA): queries, keys and values of all heads are made from narrow vectors, and a part of each key is
// the same for all heads.
//
//   q', c, r = down(x)                    x: (T, H)   q': (T, q_rank)   c: (T, kv_rank)   r: (T, turning)
//   q = up_q(norm(q'))                    q: (T, heads * (plain + turning)); without a q_rank, q = q'
//   k, v = up_kv(norm(c))                 of each head: plain elements of k, then `value` of v
//   k = k | rope(r), q = q | rope(q)      on the last `turning` elements of each head
//   y = residual + o(attention(q, k, v))
//
// With RopeConfig::query_growth each query is multiplied by what grows with its position.
//
// Where values are narrower than keys, they are padded with zeros for attention, whose outputs there are zero.
// Generation caches whole keys and values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/model/layers/norm.h"
#include "megatrain/model/layers/rope_table.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct LatentOperand {
  enum : int {
    down = BlockOperand::first_free,  // (q_rank + kv_rank + turning, H); without a q_rank, q's rows come first
    down_bias,
    q_norm,   // (q_rank)
    up_q,     // (heads * (plain + turning), q_rank)
    kv_norm,  // (kv_rank)
    up_kv,    // (heads * (plain + value), kv_rank)
  };
};

struct LatentSizes {
  LatentConfig of;
  int64_t heads;
  float scale;  // multiplies q k^T
  DType dtype;
  int64_t positions;  // positions in the rotary tables
  RopeConfig rope;

  int64_t head() const { return of.plain + of.turning; }
  bool padded() const { return of.value < head(); }
  int64_t keys() const { return heads * head(); }                       // width of q, of k and of padded values
  int64_t values() const { return heads * of.value; }                   // width of o's input
  int64_t first() const { return of.q_rank > 0 ? of.q_rank : keys(); }  // columns before c
  int64_t down() const { return first() + of.kv_rank + of.turning; }
  int64_t up_kv() const { return heads * (of.plain + of.value); }
};
LatentSizes latent_sizes(const ModelConfig& config, const ModelShape& shape);

class LatentAttention final : public Mixer {
 public:
  LatentAttention(const LatentSizes& sizes, const LinearTensors& from);

  // `outputs` keeps attention's output and its row statistics; `attention` also keeps q, k and v and what they are made
  // from.
  std::vector<Level> keep_levels() const override;
  std::unique_ptr<Mixer::Work> carve(const Space& space) const override;
  void in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const override;
  void mix(const Binding& at, const Call& call) const override;
  void out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
           const View& y) const override;
  void out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const override;
  void mix_backward(const Binding& at, const Call& call) const override;
  void in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x, const View& grad_x,
                   bool add) const override;

  // Keys, then values: (sequences * context, heads * (plain + turning)) each.
  int64_t cache_bytes(int64_t sequences, int64_t context) const override;
  std::unique_ptr<Mixer::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;
  struct Turn;
  struct Rotate;
  struct Project;
  AttentionShape shape(int64_t tokens) const;
  View latent(const View& down) const { return down.slice_cols(s_.first(), s_.of.kv_rank); }
  View shared_key(const View& down) const { return down.slice_cols(s_.first() + s_.of.kv_rank, s_.of.turning); }
  void rope(const Binding& at, const Rotate& args, const int32_t* angles, bool backward) const;
  void rope_key(const Binding& at, const View& down, const Turn& turn, bool backward) const;
  void rope_queries(const Binding& at, const View& q, const Turn& turn, bool backward) const;
  void project(const Binding& at, const Project& args) const;
  void move(const Binding& at, const MoveHeads& args) const { at.ops.move_heads(at.stream, args); }
  View outputs(const Binding& at, const Work& work, const TokenRange& range) const;

  LatentSizes s_;
  Norm q_norm_, kv_norm_;
  Linear down_, up_q_, up_kv_, o_;
};

}  // namespace megatrain
