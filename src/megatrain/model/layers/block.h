// The block: a phase with two residual branches, either of which may be missing.
//
//   h = x + mixers(norm(x))          (mixer.h)       x, h, y: (T, H)
//   y = h + channels(norm(h))        (channel.h)
//
// A branch has a norm before it, a post-norm, or both.
//
// The mixers of a branch all read the same input, and their outputs are added in order; likewise the channels. The
// gradients of that input are added in order of the mixers, and from the last channel to the first. If the record has a
// post-norm for a branch, it is applied to the branch's output before the sum. A layer with more branches
// has more phases.
//
// Everything but Mixer::mix() runs over ranges of tokens, so only the mixers' buffers grow with the tokens of a
// micro-batch. The exception is a channel that takes a whole micro-batch at once: then all channels of the block do.
//
// The list of keep levels (KeepLevel) starts with "nothing", continues with the mixers' levels and then the channels'
// levels, and ends with "everything". With several mixers (or channels), the longest of their lists gives the names.
//
// The block's first record has the weights of both branches. After it come the mixers' own records, then the last
// channel's buffers and its own records (experts), then the adapters. If that channel has several records, the phase
// runs in parts: first everything else, then one part per record of the channel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/model/layers/channel.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/model/layers/norm.h"

namespace megatrain {

struct BlockShape {
  int64_t hidden;  // H
  NormShape norm;
  DType dtype;
  int64_t tokens;  // T of a micro-batch, at most
  int64_t chunk;   // maximum tokens of a range
};
BlockShape block_shape(const ModelConfig& config, const ModelShape& shape);

class Block final : public Phase {
 public:
  using Mixers = std::vector<std::unique_ptr<const Mixer>>;
  using Channels = std::vector<std::unique_ptr<const Channel>>;
  Block(const BlockShape& shape, const LinearTensors& from, Mixers mixers, Channels channels);

  std::vector<int64_t> records() const override;
  std::vector<std::vector<int64_t>> parts() const override;
  int64_t in_width() const override { return s_.hidden; }
  int64_t out_width() const override { return s_.hidden; }
  int64_t shared_width() const override;
  std::optional<SharedRead> reads_shared() const override;
  int64_t workspace_bytes() const override;
  std::vector<KeepLevel> keep_levels() const override;
  int64_t between_parts_bytes() const override;
  int64_t router_bytes() const override;
  void forward(Ops& ops, Stream& stream, const Forward& args) const override;
  void backward(Ops& ops, Stream& stream, const Backward& args) const override;
  void recompute(Ops& ops, Stream& stream, const Backward& args) const override;
  int64_t cache_bytes(int64_t sequences, int64_t context) const override;
  bool cache_rewinds() const override;
  int64_t decode_workspace_bytes(int64_t tokens) const override;
  bool decode_chooses(int64_t record, int64_t tokens) const override;
  void decode(Ops& ops, Stream& stream, const Decode& args) const override;

 private:
  // One keep level: what each mixer, each channel and the block itself keep at it.
  struct Level {
    std::string name, recomputed;
    bool may_wait = false;
    std::vector<int64_t> mixers, channels;  // the level of each mixer and channel
    bool mixed = false;                     // mix() need not be recomputed
    bool mixers_whole = false;              // neither mix() nor in() need be recomputed
    int64_t own = 0;                        // the block's own level, see Own
  };
  enum Own : int64_t {
    residual = 1,  // h, and the input of the post-norm of the mixers
    channeled,     // the input of the post-norm of the channels
    everything,    // outputs and statistics of all norms
  };
  void make_levels();
  void add_mixer_levels();
  void add_channel_levels();
  const Level& level(Keep keep) const { return levels_[keep_index(keep)]; }
  struct Work;  // views of kept activations and workspace
  struct Pass;  // one call: its arguments and views
  struct Bytes {
    int64_t workspace, between_parts, kept;
  };
  struct DecodeWork;  // views of the workspace in generation
  bool in_parts() const { return channel_records_ > 1; }
  bool has_buffers() const { return !channels_.empty() && channels_.back()->has_buffers(); }
  int64_t buffers_record() const { return 1 + mixer_records_; }
  int64_t first_channel_record() const { return buffers_record() + (has_buffers() ? 1 : 0); }
  int64_t first_channel_adapter() const { return first_channel_record() + channel_records_; }
  bool has_adapters() const { return !adapters_.tensors.empty(); }
  std::byte* carve_adapters(Carver& carver, int64_t tokens) const;  // AdapterBinding::scratch
  Bytes bytes(const Level& level, bool backward) const;
  Work carve(const Level& level, const Space& space) const;
  Work carve(int64_t tokens, std::byte* workspace, std::byte* between_parts, const Level& level, std::byte* kept,
             bool backward) const;
  std::vector<TokenRange> ranges(int64_t tokens) const;  // of a micro-batch, in order
  DecodeWork carve_decode(Carver& carver, int64_t tokens) const;
  std::vector<Binding> own_of_mixers(const Binding& first, std::span<std::byte* const> weights,
                                     std::span<float* const> gradients = {}) const;
  AdapterBinding adapters_of(int64_t part, std::span<std::byte* const> weights, std::span<float* const> gradients,
                             const MicroBatchView& micro_batch, const Work& work) const;
  std::byte* buffers_of(int64_t part, std::span<std::byte* const> weights) const;
  // The channel's record that a part works on, with its adapters.
  Binding own_of_channel(const Binding& at, int64_t part, std::span<std::byte* const> weights,
                         std::span<float* const> gradients = {}) const;
  Pass begin(Ops& ops, Stream& stream, const Forward& args) const;
  Pass begin(Ops& ops, Stream& stream, const Backward& args) const;
  View h_of(const Pass& pass, const TokenRange& range, const View& y) const;
  View channel_input(const Pass& pass, const TokenRange& range, const View& y) const;
  void scale_output(const Binding& at, const View& from, const View& to) const;

  void mix(const Pass& pass, bool run_mix) const;
  void sum_mixers(const Pass& pass, const TokenRange& range, const View& h) const;
  void sum_channels(const Pass& pass, const TokenRange& range, const View& y, bool repeated) const;
  void recompute_mixers(const Pass& pass) const;
  void recompute_channels(const Pass& pass, const TokenRange& range) const;
  void channels_backward(const Pass& pass, const TokenRange& range, const Backward& args) const;
  View behind_channels_backward(const Pass& pass, const TokenRange& range, const View& grad_y) const;
  void sum_mixers_backward(const Pass& pass, const TokenRange& range, const View& grad_h) const;
  void mix_backward(const Pass& pass, const View& grad_x) const;
  void decode_mixers(const Binding& at, const Decode& args, const DecodeWork& work) const;
  void decode_channels(const Binding& at, const Decode& args, const DecodeWork& work) const;

  BlockShape s_;
  LayerLayout adapters_;  // without tensors: there are none
  Norm mixer_norm_, behind_mixers_, channel_norm_, behind_channels_;
  WeightOperand out_scale_;
  Mixers mixers_;
  Channels channels_;
  std::vector<Level> levels_;  // from nothing to everything
  bool channels_take_all_ = false;
  int64_t mixer_records_ = 0;     // records that belong to mixers
  int64_t channel_records_ = 0;   // records that belong to a channel
  int64_t channel_adapters_ = 0;  // records of their adapters
};

}  // namespace megatrain
