#include "megatrain/model/layers/block.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/carve.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct Block::Work {
  std::vector<std::unique_ptr<Mixer::Work>> mixers;
  std::vector<std::unique_ptr<Channel::Work>> channels;
  Chunked normed;            // (H) norm(x)
  float* inv_rms{};          // (T)
  Chunked mixed;             // (H) the mixers' outputs, only if a post-norm follows
  float* mixed_inv_rms{};    // (T)
  Chunked h;                 // (H)
  Chunked channel_normed;    // (H) norm(h)
  Chunked channel_inv_rms;   // (1) fp32
  Chunked channeled;         // (H) the channels' outputs, only if a post-norm follows
  View before_last;          // (T, H) h and all channels but the last, only if that one runs in parts of its own
  Chunked behind_inv_rms;    // (1) fp32
  View grad_behind;          // (C, H) gradient of a branch's output before its post-norm; (T, H) as below
  View grad_normed;          // (C, H)
  View channel_grad_normed;  // (C, H), or (T, H) if channels take all tokens
  std::byte* adapters{};     // AdapterBinding::scratch
};

BlockShape block_shape(const ModelConfig& config, const ModelShape& shape) {
  return {.hidden = config.hidden,
          .norm = norm_shape(config),
          .dtype = shape.dtype,
          .tokens = shape.tokens,
          .chunk = shape.mlp_chunk > 0 ? std::min(shape.mlp_chunk, shape.tokens) : shape.tokens};
}

Block::Block(const BlockShape& shape, const LinearTensors& from, Mixers mixers, Channels channels)
    : s_(shape),
      adapters_(from.adapters ? *from.adapters : LayerLayout()),
      mixer_norm_(from.record, BlockOperand::input_norm, shape.norm),
      behind_mixers_(from.record, BlockOperand::o_norm, shape.norm),
      channel_norm_(from.record, BlockOperand::post_norm, shape.norm),
      behind_channels_(from.record, BlockOperand::down_norm, shape.norm),
      out_scale_(find_operand(from.record, BlockOperand::out_scale)),
      mixers_(std::move(mixers)),
      channels_(std::move(channels)) {
  for (const auto& channel : channels_) {
    channels_take_all_ = channels_take_all_ || channel->takes_all_tokens();
    channel_records_ += channel->own_records();
    channel_adapters_ += channel->own_adapters();
  }
  for (const auto& mixer : mixers_) mixer_records_ += mixer->has_own_record();
  ensure(std::ranges::count_if(mixers_, [](const auto& mixer) { return mixer->shared_width() > 0; }) < 2 &&
             std::ranges::count_if(mixers_, [](const auto& mixer) { return mixer->reads_shared().has_value(); }) < 2,
         "one mixer of a block shares, and one reads");
  const auto normed = [](bool empty, const Norm& before, const Norm& behind) {
    return empty || before.exists() || behind.exists();
  };
  ensure(normed(mixers_.empty(), mixer_norm_, behind_mixers_) &&
             normed(channels_.empty(), channel_norm_, behind_channels_),
         "each branch has a norm");
  ensure(channel_records_ == 0 || channels_.back()->own_records() == channel_records_,
         "a channel with records of its own is the last of its block");
  ensure(channel_records_ < 2 || !mixers_.empty() || channels_.size() > 1, "x is there for the first part alone");
  ensure(channel_records_ < 2 || (channel_norm_.exists() && out_scale_.cols == 0), "parts have a norm and no scale");
  make_levels();
}

void Block::make_levels() {
  levels_.push_back({.name = "nothing",
                     .recomputed = "all",
                     .mixers = std::vector<int64_t>(mixers_.size()),
                     .channels = std::vector<int64_t>(channels_.size()),
                     .mixed = mixers_.empty(),
                     .mixers_whole = mixers_.empty()});
  add_mixer_levels();
  add_channel_levels();
  Level all = levels_.back();
  all.name = "everything";
  all.recomputed = "none";
  all.may_wait = false;
  for (size_t i = 0; i < mixers_.size(); ++i) all.mixers[i] = std::ssize(mixers_[i]->keep_levels()) + 1;
  for (size_t i = 0; i < channels_.size(); ++i) all.channels[i] = std::ssize(channels_[i]->keep_levels()) + 1;
  all.mixed = all.mixers_whole = true;
  all.own = everything;
  levels_.push_back(std::move(all));
}

namespace {

// The keep levels of each mixer, or of each channel.
template <class Parts>
auto lists_of_levels(const Parts& parts) {
  std::vector<decltype(parts.front()->keep_levels())> lists;
  for (const auto& part : parts) lists.push_back(part->keep_levels());
  return lists;
}

// Empty without lists.
template <class List>
List longest_of(const std::vector<List>& lists) {
  const auto longest = std::ranges::max_element(lists, {}, [](const List& list) { return list.size(); });
  return longest == lists.end() ? List{} : *longest;
}

}  // namespace

// A mixer with fewer levels than the longest list stays at its last level until the longest list reaches a `whole` one.
void Block::add_mixer_levels() {
  const auto lists = lists_of_levels(mixers_);
  const auto longest = longest_of(lists);
  for (size_t at = 0; at < longest.size(); ++at) {
    const Mixer::Level& named = longest[at];
    Level level = levels_.front();
    level.name = named.name;
    level.mixers_whole = named.whole;
    level.mixed = level.may_wait = true;
    for (size_t i = 0; i < lists.size(); ++i) {
      const size_t last = lists[i].size(), own = std::min(at + 1, last);
      level.mixers[i] = static_cast<int64_t>(named.whole ? last + 1 : own);
      level.mixed = level.mixed && (named.whole || (own > 0 && lists[i][own - 1].mixed));
      level.may_wait = level.may_wait && own > 0 && lists[i][own - 1].may_wait;
    }
    if (named.whole) level.own = residual;
    level.recomputed = !named.whole ? "all but " + named.spared : channels_.empty() ? "norms" : "mlp";
    levels_.push_back(std::move(level));
  }
}

void Block::add_channel_levels() {
  const auto lists = lists_of_levels(channels_);
  const auto longest = longest_of(lists);
  for (size_t at = 0; at < longest.size(); ++at) {
    const bool last = at + 1 == longest.size();
    Level level = levels_.back();
    level.name = longest[at];
    level.may_wait = false;
    for (size_t i = 0; i < lists.size(); ++i)
      level.channels[i] = static_cast<int64_t>(std::min(at + 1, lists[i].size()));
    level.own = std::max<int64_t>(level.own, last ? channeled : residual);
    level.recomputed = last && level.mixers_whole ? "norms" : "all but " + level.name;
    levels_.push_back(std::move(level));
  }
}

std::vector<KeepLevel> Block::keep_levels() const {
  std::vector<KeepLevel> list;
  for (const Level& level : levels_) {
    list.push_back({.name = level.name,
                    .recomputed = level.recomputed,
                    .may_wait = level.may_wait,
                    .bytes = bytes(level, true).kept});
  }
  return list;
}

std::vector<int64_t> Block::records() const {
  std::vector<int64_t> list;
  for (int64_t r = 0; r < first_channel_adapter() + channel_adapters_ + (has_adapters() ? 1 : 0); ++r)
    list.push_back(r);
  return list;
}

std::vector<std::vector<int64_t>> Block::parts() const {
  if (!in_parts()) return {records()};
  const std::vector<int64_t> all = records();
  const auto own = all.begin() + first_channel_record(), adapters = own + channel_records_,
             behind = adapters + channel_adapters_;
  std::vector<std::vector<int64_t>> list = {{all.begin(), own}};
  list.front().insert(list.front().end(), behind, all.end());
  for (int64_t i = 0; i < channel_records_; ++i) {
    list.push_back({own[i]});
    if (channel_adapters_ > 0) list.back().push_back(adapters[i]);
  }
  return list;
}

int64_t Block::shared_width() const {
  int64_t width = 0;
  for (const auto& mixer : mixers_) width += mixer->shared_width();
  return width;
}

std::optional<SharedRead> Block::reads_shared() const {
  for (const auto& mixer : mixers_) {
    if (const auto read = mixer->reads_shared()) return read;
  }
  return {};
}

// `space.keep` is the block's own level (Own).
Block::Work Block::carve(const Level& level, const Space& space) const {
  Work w;
  const auto rows = [&](Own own, bool whole) { return space.chunked(own, s_.dtype, s_.hidden, whole); };
  const bool all = channels_take_all_;
  if (!mixers_.empty()) {
    if (mixer_norm_.exists()) {
      w.normed = rows(everything, false);
      w.inv_rms = space.at(everything).array<float>(space.tokens);
    }
    for (size_t i = 0; i < mixers_.size(); ++i) w.mixers.push_back(mixers_[i]->carve(space.with(level.mixers[i])));
    if (behind_mixers_.exists()) {
      w.mixed = rows(residual, all);
      w.mixed_inv_rms = space.at(residual).array<float>(space.tokens);
    }
    if (!channels_.empty()) w.h = rows(residual, all);
  }
  if (behind_mixers_.exists() || behind_channels_.exists())
    w.grad_behind = space.work.view(s_.dtype, all ? space.tokens : space.chunk, s_.hidden);
  w.grad_normed = space.work.view(s_.dtype, space.chunk, s_.hidden);
  w.adapters = carve_adapters(space.work, all ? space.tokens : space.chunk);
  if (!channels_.empty()) {
    if (channel_norm_.exists()) {
      w.channel_normed = rows(everything, all);
      w.channel_inv_rms = space.chunked(everything, DType::f32, 1, all);
    }
    if (behind_channels_.exists()) {
      w.channeled = rows(channeled, all);
      w.behind_inv_rms = space.chunked(everything, DType::f32, 1, all);
    }
    for (size_t i = 0; i < channels_.size(); ++i)
      w.channels.push_back(channels_[i]->carve((all ? space.in_one_range() : space).with(level.channels[i])));
    if (in_parts() && channels_.size() > 1) w.before_last = space.made.view(s_.dtype, space.tokens, s_.hidden);
    const bool shared = !in_parts() && (!all || space.chunk == space.tokens || !channel_norm_.exists());
    w.channel_grad_normed = shared ? w.grad_normed : space.made.view(s_.dtype, space.tokens, s_.hidden);
  }
  return w;
}

Block::Work Block::carve(int64_t tokens, std::byte* workspace, std::byte* between_parts, const Level& level,
                         std::byte* kept, bool backward) const {
  Carver work(workspace), part(workspace), carrying(between_parts), keeping(kept);
  return carve(level, {tokens, std::min(s_.chunk, tokens), level.own, work, part, in_parts() ? carrying : work, keeping,
                       backward});
}

Block::Bytes Block::bytes(const Level& level, bool backward) const {
  Carver work(nullptr), part(nullptr), carrying(nullptr), keeping(nullptr);
  carve(level, {s_.tokens, s_.chunk, level.own, work, part, in_parts() ? carrying : work, keeping, backward});
  return {std::max(work.bytes(), part.bytes()), carrying.bytes(), keeping.bytes()};
}

std::byte* Block::carve_adapters(Carver& carver, int64_t tokens) const {
  return has_adapters() ? carver.array<std::byte>(adapter_scratch_bytes(adapters_, tokens)) : nullptr;
}

int64_t Block::workspace_bytes() const { return bytes(levels_.front(), false).workspace; }
int64_t Block::between_parts_bytes() const { return bytes(levels_.front(), false).between_parts; }

int64_t Block::router_bytes() const {
  int64_t bytes = 0;
  for (const auto& channel : channels_) bytes += channel->router_bytes();
  return bytes;
}

struct Block::Pass {
  Binding at;   // the first record
  Binding own;  // the record that this part works on
  std::vector<Binding> own_of_mixers;
  View x;
  MicroBatchView micro_batch;
  std::vector<TokenRange> ranges;  // of its tokens, in order
  const float* tables;
  const Level& level;
  SharedViews shared;
  std::byte* router_counts;
  RouterSlopes router;
  std::byte* buffers;  // of the last channel, in the first part
  Work work;

  Mixer::Call mixer(size_t index) const {
    return {*work.mixers[index], own_of_mixers[index], micro_batch, tables, shared};
  }
  Channel::Call channel(size_t index, const TokenRange& range) const {
    return {.work = *work.channels[index],
            .range = range,
            .keep = level.channels[index],
            .micro_batch = micro_batch,
            .own = own,
            .router_counts = router_counts,
            .router = router,
            .buffers = buffers};
  }
};

// The record of each mixer: its own, or the block's first. Parts after the first have no mixers, so they get none.
std::vector<Binding> Block::own_of_mixers(const Binding& first, std::span<std::byte* const> weights,
                                          std::span<float* const> gradients) const {
  std::vector<Binding> list;
  size_t next = 1;
  for (const auto& mixer : mixers_) {
    if (!mixer->has_own_record()) {
      list.push_back(first);
    } else if (next < weights.size()) {
      list.push_back(
          {first.ops, first.stream, weights[next], gradients.empty() ? nullptr : gradients[next], first.accumulate});
      ++next;
    }
  }
  return list;
}

std::byte* Block::buffers_of(int64_t part, std::span<std::byte* const> weights) const {
  return has_buffers() && part == 0 ? weights[static_cast<size_t>(buffers_record())] : nullptr;
}

Binding Block::own_of_channel(const Binding& at, int64_t part, std::span<std::byte* const> weights,
                              std::span<float* const> gradients) const {
  const bool first_of_several = part == 0 && channel_records_ != 1;
  const auto index = static_cast<size_t>(part > 0 || first_of_several ? 0 : first_channel_record());
  const auto gradient = [&](size_t i) { return gradients.empty() ? nullptr : gradients[i]; };
  Binding own{at.ops, at.stream, weights[index], gradient(index), at.accumulate};
  if (channel_adapters_ > 0 && !first_of_several)
    own.adapter = {.weights = weights[index + 1], .gradients = gradient(index + 1)};
  return own;
}

// The block's adapters are the last record of the first part, which alone computes with them.
AdapterBinding Block::adapters_of(int64_t part, std::span<std::byte* const> weights, std::span<float* const> gradients,
                                  const MicroBatchView& micro_batch, const Work& work) const {
  if (!has_adapters() || part > 0) return {};
  return {.weights = weights.back(),
          .gradients = gradients.empty() ? nullptr : gradients.back(),
          .scratch = work.adapters,
          .random = micro_batch.random};
}

Block::Pass Block::begin(Ops& ops, Stream& stream, const Forward& a) const {
  Work work = carve(a.micro_batch.tokens, a.workspace, a.between_parts, level(a.keep), a.kept, a.kept != nullptr);
  Binding at{ops, stream, a.weights.front()};
  at.adapter = adapters_of(a.part, a.weights, {}, a.micro_batch, work);
  return {.at = at,
          .own = own_of_channel(at, a.part, a.weights),
          .own_of_mixers = own_of_mixers(at, a.weights),
          .x = a.x,
          .micro_batch = a.micro_batch,
          .ranges = ranges(a.micro_batch.tokens),
          .tables = a.tables,
          .level = level(a.keep),
          .shared = a.shared,
          .router_counts = a.router_counts,
          .router = {},
          .buffers = buffers_of(a.part, a.weights),
          .work = std::move(work)};
}

Block::Pass Block::begin(Ops& ops, Stream& stream, const Backward& a) const {
  const bool grads = !a.weight_grads.empty();  // recompute() has none
  Work work = carve(a.micro_batch.tokens, a.workspace, a.between_parts, level(a.keep), a.kept, true);
  Binding at{ops, stream, a.weights.front(), grads ? a.weight_grads.front() : nullptr, a.accumulate};
  at.adapter = adapters_of(a.part, a.weights, a.weight_grads, a.micro_batch, work);
  return {.at = at,
          .own = own_of_channel(at, a.part, a.weights, a.weight_grads),
          .own_of_mixers = own_of_mixers(at, a.weights, a.weight_grads),
          .x = a.x,
          .micro_batch = a.micro_batch,
          .ranges = ranges(a.micro_batch.tokens),
          .tables = a.tables,
          .level = level(a.keep),
          .shared = a.shared,
          .router_counts = nullptr,
          .router = a.router,
          .buffers = nullptr,
          .work = std::move(work)};
}

// The residual stream between the branches. Without mixers it is x; without channels it is y.
View Block::h_of(const Pass& p, const TokenRange& range, const View& y) const {
  if (mixers_.empty()) return p.x.slice_rows(range.begin, range.count);
  return channels_.empty() ? y.slice_rows(range.begin, range.count) : p.work.h.at(range);
}

// h, normalised if there is a norm.
View Block::channel_input(const Pass& p, const TokenRange& range, const View& y) const {
  return channel_norm_.exists() ? p.work.channel_normed.at(range) : h_of(p, range, y);
}

std::vector<TokenRange> Block::ranges(int64_t tokens) const {
  std::vector<TokenRange> list;
  for (int64_t begin = 0; begin < tokens; begin += s_.chunk)
    list.push_back({begin, std::min(s_.chunk, tokens - begin)});
  return list;
}

void Block::scale_output(const Binding& at, const View& from, const View& to) const {
  if (out_scale_.cols > 0) at.ops.scale_all(at.stream, {.x = from, .factor = out_scale_.weight(at.weights), .out = to});
}

// From x to the input of the mixers' out(), for all tokens. `run_mix` is false if the result of mix() was kept.
void Block::mix(const Pass& p, bool run_mix) const {
  if (mixers_.empty()) return;
  for (const TokenRange& range : p.ranges) {
    const View x = p.x.slice_rows(range.begin, range.count);
    const View normed = mixer_norm_.exists() ? p.work.normed.at(range) : x;
    if (mixer_norm_.exists()) mixer_norm_.forward(p.at, x, normed, p.work.inv_rms + range.begin);
    for (size_t i = 0; i < mixers_.size(); ++i) mixers_[i]->in(p.at.at(range), p.mixer(i), range, normed);
  }
  for (size_t i = 0; run_mix && i < mixers_.size(); ++i) mixers_[i]->mix(p.at, p.mixer(i));
}

// From the result of mix() to h.
void Block::sum_mixers(const Pass& p, const TokenRange& range, const View& h) const {
  const View residual = p.x.slice_rows(range.begin, range.count);
  const bool behind = behind_mixers_.exists();
  const View sum = behind ? p.work.mixed.at(range) : h;
  for (size_t i = 0; i < mixers_.size(); ++i)
    mixers_[i]->out(p.at.at(range), p.mixer(i), range, i > 0 ? sum : behind ? View{} : residual, sum);
  if (behind) behind_mixers_.forward(p.at, sum, h, p.work.mixed_inv_rms + range.begin, residual);
}

// From h to y. With several parts, the last part completes y.
void Block::sum_channels(const Pass& p, const TokenRange& range, const View& y, bool repeated) const {
  const View h = h_of(p, range, y), normed = channel_input(p, range, y);
  const View part = in_parts() ? p.work.before_last : y.slice_rows(range.begin, range.count);
  const bool behind = behind_channels_.exists();
  const View sum = behind ? p.work.channeled.at(range) : part;
  bool reads = !repeated;
  for (size_t i = 0; i < channels_.size(); ++i) reads = reads || channels_[i]->reads_input_again(p.level.channels[i]);
  if (reads && channel_norm_.exists())
    channel_norm_.forward(p.at, h, normed, p.work.channel_inv_rms.at(range).as<float>());
  for (size_t i = 0; i < channels_.size(); ++i)
    channels_[i]->forward(p.at.at(range), p.channel(i, range), normed,
                          i > 0    ? sum
                          : behind ? View{}
                                   : h,
                          sum, repeated);
  if (behind) behind_channels_.forward(p.at, sum, part, p.work.behind_inv_rms.at(range).as<float>(), h);
}

void Block::forward(Ops& ops, Stream& stream, const Forward& a) const {
  const Pass p = begin(ops, stream, a);
  const TokenRange all{0, p.micro_batch.tokens};
  if (a.part > 0) {
    const size_t last = channels_.size() - 1;
    channels_[last]->forward_own(p.channel(last, all), a.part - 1, p.work.channel_normed.view,
                                 last > 0 ? p.work.before_last : p.work.h.view, a.y);
    return;
  }
  const bool has_mixed = a.repeated && p.level.mixed;
  const bool reads_in = std::ranges::any_of(mixers_, [](const auto& mixer) { return mixer->out_reads_in(); });
  if (!has_mixed || (reads_in && !p.level.mixers_whole)) mix(p, !has_mixed);
  const bool has_h = a.repeated && p.level.own >= residual && !channels_.empty();
  for (const TokenRange& range : p.ranges) {
    if (!has_h) sum_mixers(p, range, h_of(p, range, a.y));
    if (!channels_.empty() && !channels_take_all_) sum_channels(p, range, a.y, a.repeated);
  }
  if (channels_take_all_) sum_channels(p, all, a.y, a.repeated);
  scale_output(p.at, a.y, a.y);
}

// Recomputes the activations of the mixers that backward needs and that were not kept. These include h only if channels
// take all tokens.
void Block::recompute_mixers(const Pass& p) const {
  if (!p.level.mixers_whole) mix(p, !p.level.mixed);
  if (!channels_take_all_ || p.level.own >= residual) return;
  for (const TokenRange& range : p.ranges) sum_mixers(p, range, p.work.h.at(range));
}

void Block::recompute_channels(const Pass& p, const TokenRange& range) const {
  const View h = h_of(p, range, {}), normed = channel_input(p, range, {});
  if (p.level.own < everything && channel_norm_.exists())
    channel_norm_.forward(p.at, h, normed, p.work.channel_inv_rms.at(range).as<float>());
  for (size_t i = 0; i < channels_.size(); ++i) channels_[i]->recompute(p.at.at(range), p.channel(i, range), normed);
}

void Block::recompute(Ops& ops, Stream& stream, const Backward& a) const {
  const Pass p = begin(ops, stream, a);
  recompute_mixers(p);
  recompute_channels(p, {0, p.micro_batch.tokens});
}

void Block::backward(Ops& ops, Stream& stream, const Backward& args) const {
  const Pass p = begin(ops, stream, args);
  Backward a = args;
  if (out_scale_.cols > 0) {
    scale_output(p.at, args.grad_y, args.grad_x);
    a.grad_y = args.grad_x;
  }
  const TokenRange all{0, p.micro_batch.tokens};
  if (a.part > 0) {
    const size_t last = channels_.size() - 1;
    channels_[last]->backward_own(p.channel(last, all), a.part - 1, p.work.channel_normed.view, a.grad_y,
                                  p.work.channel_grad_normed);
    return;
  }
  const auto grad_h = [&](const TokenRange& range) { return a.grad_x.slice_rows(range.begin, range.count); };
  if (!in_parts()) recompute_mixers(p);
  if (channels_.empty() && a.grad_x.data != a.grad_y.data)
    stream.copy(a.grad_x.data, a.grad_y.data, static_cast<size_t>(a.grad_y.bytes()));
  if (channels_take_all_) {
    if (!in_parts()) recompute_channels(p, all);
    channels_backward(p, all, a);
  }
  for (const TokenRange& range : p.ranges) {
    if (!channels_take_all_ && !channels_.empty()) {
      if (p.level.own < residual && !mixers_.empty()) sum_mixers(p, range, p.work.h.at(range));
      recompute_channels(p, range);
      channels_backward(p, range, a);
    }
    // The post-norm needs its input; h itself is not read.
    if (channels_.empty() && behind_mixers_.exists() && p.level.own < residual)
      sum_mixers(p, range, p.work.grad_normed.slice_rows(0, range.count));
    sum_mixers_backward(p, range, grad_h(range));
  }
  mix_backward(p, a.grad_x);
}

// Returns the gradient of the channels' outputs, given that of y.
View Block::behind_channels_backward(const Pass& p, const TokenRange& range, const View& grad_y) const {
  const Binding at = p.at.at(range);
  const View outputs = p.work.channeled.at(range), grad = p.work.grad_behind.slice_rows(0, range.count);
  float* inv_rms = p.work.behind_inv_rms.at(range).as<float>();
  for (size_t i = 0; p.level.own < channeled && i < channels_.size(); ++i)
    channels_[i]->recompute_output(at, p.channel(i, range), channel_input(p, range, {}), i > 0 ? outputs : View{},
                                   outputs);
  if (p.level.own < everything) behind_channels_.forward(at, outputs, grad, inv_rms);
  behind_channels_.backward(at, {.x = outputs, .inv_rms = inv_rms, .grad_out = grad_y, .grad_x = grad});
  return grad;
}

// From dL/dy in grad_y to dL/dh in grad_x.
void Block::channels_backward(const Pass& p, const TokenRange& range, const Backward& a) const {
  const Binding at = p.at.at(range);
  const bool behind = behind_channels_.exists();
  const bool before = channel_norm_.exists();
  const View grad_y = a.grad_y.slice_rows(range.begin, range.count), h = h_of(p, range, {});
  const View grad_h = a.grad_x.slice_rows(range.begin, range.count);
  const View normed = channel_input(p, range, {});
  const View grad_normed = before ? p.work.channel_grad_normed.slice_rows(0, range.count) : grad_h;
  const View grad = behind ? behind_channels_backward(p, range, grad_y) : grad_y;
  const bool output_made = behind && p.level.own < channeled;
  if (!before && grad_h.data != grad_y.data)  // then `grad` is a buffer of its own, and the channels add to dL/dy
    at.stream.copy(grad_h.data, grad_y.data, static_cast<size_t>(grad_y.bytes()));
  // The last channel is the first, since its own parts have written their share of grad_normed.
  for (size_t i = channels_.size(); i-- > 0;)
    channels_[i]->backward(at, p.channel(i, range), normed, grad, grad_normed, output_made,
                           i + 1 < channels_.size() || !before);
  if (before)
    channel_norm_.backward(at, {.x = h,
                                .inv_rms = p.work.channel_inv_rms.at(range).as<float>(),
                                .grad_out = grad_normed,
                                .residual = grad_y,
                                .grad_x = grad_h});
}

// From dL/dh, which is left as it is, to the gradient of the result of mix().
void Block::sum_mixers_backward(const Pass& p, const TokenRange& range, const View& grad_h) const {
  const Binding at = p.at.at(range);
  View grad = grad_h;
  if (behind_mixers_.exists()) {
    grad = p.work.grad_behind.slice_rows(0, range.count);
    behind_mixers_.backward(at, {.x = p.work.mixed.at(range),
                                 .inv_rms = p.work.mixed_inv_rms + range.begin,
                                 .grad_out = grad_h,
                                 .grad_x = grad});
  }
  for (size_t i = 0; i < mixers_.size(); ++i) mixers_[i]->out_backward(at, p.mixer(i), range, grad);
}

// Turns grad_x from dL/dh into dL/dx.
void Block::mix_backward(const Pass& p, const View& grad_x) const {
  if (mixers_.empty()) return;
  for (size_t i = 0; i < mixers_.size(); ++i) mixers_[i]->mix_backward(p.at, p.mixer(i));
  for (const TokenRange& range : p.ranges) {
    const Binding at = p.at.at(range);
    const View x = p.x.slice_rows(range.begin, range.count), grad = grad_x.slice_rows(range.begin, range.count);
    if (!mixer_norm_.exists()) {
      for (size_t i = 0; i < mixers_.size(); ++i) mixers_[i]->in_backward(at, p.mixer(i), range, x, grad, true);
      continue;
    }
    const View normed = p.work.normed.at(range), grad_normed = p.work.grad_normed.slice_rows(0, range.count);
    const bool still_there =
        !p.level.mixers_whole && range.count == p.micro_batch.tokens;  // Block::mix() recomputed it
    if (p.level.own < everything && !still_there) mixer_norm_.forward(at, x, normed, p.work.inv_rms + range.begin);
    for (size_t i = 0; i < mixers_.size(); ++i)
      mixers_[i]->in_backward(at, p.mixer(i), range, normed, grad_normed, i > 0);
    mixer_norm_.backward(
        at,
        {.x = x, .inv_rms = p.work.inv_rms + range.begin, .grad_out = grad_normed, .residual = grad, .grad_x = grad});
  }
}

struct Block::DecodeWork {
  View normed;       // (T, H)
  float* inv_rms{};  // (T) never read
  View sum;          // (T, H) output of a branch that has a post-norm
  std::byte* adapters{};
  std::vector<std::unique_ptr<Mixer::Work>> mixers;
  std::vector<std::unique_ptr<Channel::Work>> channels;
};

Block::DecodeWork Block::carve_decode(Carver& carver, int64_t tokens) const {
  DecodeWork w;
  if (mixer_norm_.exists() || channel_norm_.exists()) w.normed = carver.view(s_.dtype, tokens, s_.hidden);
  w.inv_rms = carver.array<float>(tokens);
  if (behind_mixers_.exists() || behind_channels_.exists()) w.sum = carver.view(s_.dtype, tokens, s_.hidden);
  w.adapters = carve_adapters(carver, tokens);
  for (const auto& mixer : mixers_) w.mixers.push_back(mixer->carve_decode(carver, tokens));
  for (const auto& channel : channels_) w.channels.push_back(channel->carve_decode(carver, tokens));
  return w;
}

int64_t Block::decode_workspace_bytes(int64_t tokens) const {
  Carver carver(nullptr);
  carve_decode(carver, tokens);
  return carver.bytes();
}

int64_t Block::cache_bytes(int64_t sequences, int64_t context) const {
  int64_t bytes = 0;
  for (const auto& mixer : mixers_) bytes += mixer->cache_bytes(sequences, context);
  return bytes;
}

bool Block::cache_rewinds() const {
  return std::all_of(mixers_.begin(), mixers_.end(), [](const auto& mixer) { return mixer->cache_rewinds(); });
}

bool Block::decode_chooses(int64_t record, int64_t tokens) const {
  return record >= first_channel_record() && record < first_channel_record() + channel_records_ &&
         channels_.back()->decode_chooses(tokens);
}

// From x to h, which is written to args.y.
void Block::decode_mixers(const Binding& at, const Decode& a, const DecodeWork& w) const {
  const bool behind = behind_mixers_.exists();
  const View sum = behind ? w.sum : a.y;
  SequenceCache cache = a.cache;
  const std::vector<Binding> own = own_of_mixers(at, a.weights);
  if (mixer_norm_.exists()) mixer_norm_.forward(at, a.x, w.normed, w.inv_rms);
  for (size_t i = 0; i < mixers_.size(); ++i) {
    mixers_[i]->decode(at, {.work = *w.mixers[i],
                            .own = own[i],
                            .x = mixer_norm_.exists() ? w.normed : a.x,
                            .residual = i > 0    ? sum
                                        : behind ? View{}
                                                 : a.x,
                            .y = sum,
                            .tokens = a.tokens,
                            .cache = cache,
                            .read = a.read,
                            .tables = a.tables});
    cache.bytes += mixers_[i]->cache_bytes(cache.sequences, cache.context);
  }
  if (behind) behind_mixers_.forward(at, sum, a.y, w.inv_rms, a.x);
}

void Block::decode_channels(const Binding& at, const Decode& a, const DecodeWork& w) const {
  const View h = mixers_.empty() ? a.x : a.y;
  const bool behind = behind_channels_.exists();
  const View sum = behind ? w.sum : a.y;
  if (channel_norm_.exists()) channel_norm_.forward(at, h, w.normed, w.inv_rms);
  for (size_t i = 0; i < channels_.size(); ++i) {
    Channel::Decode decode{
        .work = *w.channels[i],
        .x = channel_norm_.exists() ? w.normed : h,
        .residual = i > 0    ? sum
                    : behind ? View{}
                             : h,
        .y = sum,
        .buffers = buffers_of(0, a.weights),
        .own = a.weights.subspan(static_cast<size_t>(first_channel_record()), static_cast<size_t>(channel_records_)),
        .adapters =
            a.weights.subspan(static_cast<size_t>(first_channel_adapter()), static_cast<size_t>(channel_adapters_)),
        .fetch = {}};
    if (a.fetch) decode.fetch = [&](int64_t own, const auto& wanted) { a.fetch(first_channel_record() + own, wanted); };
    channels_[i]->decode(at, decode);
  }
  if (behind) behind_channels_.forward(at, sum, a.y, w.inv_rms, h);
}

void Block::decode(Ops& ops, Stream& stream, const Decode& a) const {
  Carver carver(a.workspace);
  const DecodeWork w = carve_decode(carver, a.tokens.tokens);
  Binding at{ops, stream, a.weights.front()};
  if (has_adapters()) at.adapter = {.weights = a.weights.back(), .scratch = w.adapters};
  if (!mixers_.empty()) decode_mixers(at, a, w);
  if (!channels_.empty()) decode_channels(at, a, w);
  scale_output(at, a.y, a.y);
}

}  // namespace megatrain
