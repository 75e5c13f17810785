// A channel with norms of its own, for a block whose channels read the residual stream h and have no norm in common:
//
//   y = residual + after(channel(before(h)))        h, y: (T, H)
//
// In backward it adds to grad_x. The channel within it also gets h itself (Channel::Call::stream).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/model/layers/channel.h"
#include "megatrain/model/layers/norm.h"

namespace megatrain {

class Normed final : public Channel {
 public:
  Normed(std::unique_ptr<const Channel> inner, const Norm& before, const Norm& after, DType dtype);

  std::vector<std::string> keep_levels() const override { return inner_->keep_levels(); }
  std::unique_ptr<Channel::Work> carve(const Space& space) const override;
  bool takes_all_tokens() const override { return inner_->takes_all_tokens(); }
  bool has_buffers() const override { return inner_->has_buffers(); }
  int64_t own_records() const override { return inner_->own_records(); }
  int64_t own_adapters() const override { return inner_->own_adapters(); }
  int64_t router_bytes() const override { return inner_->router_bytes(); }
  bool reads_input_again(int64_t keep) const override { return inner_->reads_input_again(keep); }
  void forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
               bool repeated) const override;
  void recompute(const Binding& at, const Call& call, const View& x) const override;
  void recompute_output(const Binding& at, const Call& call, const View& x, const View& residual,
                        const View& y) const override;
  void backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                bool output_made, bool add) const override;
  std::unique_ptr<Channel::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  bool decode_chooses(int64_t tokens) const override { return inner_->decode_chooses(tokens); }
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;
  // The inner channel's last level also keeps its output; the level after it keeps everything.
  int64_t last_level() const { return std::ssize(inner_->keep_levels()); }
  Call inner_call(const Call& call, const View& stream, const View& grad_stream = {}) const;
  void remake(const Binding& at, const Call& call, const View& x) const;

  std::unique_ptr<const Channel> inner_;
  Norm before_, after_;
  DType dtype_;
};

}  // namespace megatrain
