#include "megatrain/ops/gated_norm.h"

#include <cmath>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

// silu(z) and its slope
struct GateValue {
  explicit GateValue(float z) {
    const float e = exp_f32(-z), s = 1.0f / (1.0f + e);
    value = z / (1.0f + e);
    slope = s * (1.0f + z * (e * s));
  }
  float value, slope;
};

// One group of one row as fp32. What the norm is of, `normed`, is x, or x silu(z) if the gate comes first.
class GatedGroup {
 public:
  template <class Args>
  explicit GatedGroup(const Args& args)
      : x_(args.x),
        z_(args.z),
        weight_(args.weight),
        size_(args.group_size()),
        eps_(args.eps),
        gate_first_(args.gate_first) {}

  void load(int64_t row, int64_t first) {
    x = read(x_, row, first, size_, grown(x_buffer_, size_));
    z = read(z_, row, first, size_, grown(z_buffer_, size_));
    weight = read(weight_, 0, first % weight_.cols, size_, grown(weight_buffer_, size_));
    normed = x;
    if (gate_first_) {
      float* gated = grown(normed_buffer_, size_);
      for (int64_t i = 0; i < size_; ++i) gated[i] = x[i] * GateValue(z[i]).value;
      normed = gated;
    }
    const double squares = sum_of(size_, [&](int64_t i) { return static_cast<double>(normed[i]) * normed[i]; });
    inv_rms = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(size_) + static_cast<double>(eps_)));
  }

  const float *x = nullptr, *z = nullptr, *weight = nullptr, *normed = nullptr;
  float inv_rms = 0;

 private:
  const View &x_, &z_, &weight_;
  int64_t size_;
  float eps_;
  bool gate_first_;
  std::vector<float> x_buffer_, z_buffer_, weight_buffer_, normed_buffer_;
};

template <class Args>
void check_gated_norm(const Args& args) {
  for (const View* view : {&args.x, &args.z, &args.weight}) check_dtype(*view);
  const int64_t size = args.group_size();
  ensure(args.x.cols % size == 0 && args.z.cols == args.x.cols, "a row of a gated norm has whole groups");
  ensure(args.weight.cols == size || args.weight.cols == args.x.cols,
         "a gated norm's weight has the size of a group or of a row");
}

// grad_weight[c] = sum over rows (and over groups, if they share the weight) of grad_out * normed * inv_rms, with the
// gate behind the norm also * silu(z). Rows of a block are added in order, and then the blocks.
void gated_weight_gradient(const Context& context, const GatedNormBackward& args) {
  constexpr int64_t kRows = 64;
  const int64_t size = args.group_size(), width = args.weight.cols, blocks = ceil_div(args.x.rows, kRows);
  std::vector<double> partials(static_cast<size_t>(blocks * width));
  context.team.parallel_for(blocks, [&](int64_t block) {
    GatedGroup group(args);
    std::vector<float> g_buffer;
    const int64_t end = std::min(args.x.rows, (block + 1) * kRows);
    for (int64_t row = block * kRows; row < end; ++row) {
      for (int64_t first = 0; first < args.x.cols; first += size) {
        double* sum = partials.data() + block * width + first % width;
        group.load(row, first);
        const float* g = read(args.grad_out, row, first, size, grown(g_buffer, size));
        for (int64_t i = 0; i < size; ++i) {
          const float normed = group.normed[i] * group.inv_rms;
          sum[i] += static_cast<double>(g[i]) * (args.gate_first ? normed : normed * GateValue(group.z[i]).value);
        }
      }
    }
  });
  float* grad_weight = args.grad_weight.as<float>();
  for (int64_t i = 0; i < width; ++i) {
    double sum = args.accumulate ? grad_weight[i] : 0;
    for (int64_t block = 0; block < blocks; ++block) sum += partials[static_cast<size_t>(block * width + i)];
    grad_weight[i] = static_cast<float>(sum);
  }
}

// With r = inv_rms, h the gradient of normed * r, and u = normed: du = r h - u r^3 mean(h u). On entry grad has h, on
// return du.
void norm_backward(const GatedGroup& group, int64_t size, float* grad) {
  const double dot = sum_of(size, [&](int64_t i) { return static_cast<double>(grad[i]) * group.normed[i]; });
  const double r = group.inv_rms;
  const float along = static_cast<float>(r * r * r * dot / static_cast<double>(size));
  for (int64_t i = 0; i < size; ++i) grad[i] = grad[i] * group.inv_rms - group.normed[i] * along;
}

}  // namespace

void gated_norm_forward(const Context& context, const GatedNormForward& args) {
  check_gated_norm(args);
  check_dtype(args.out);
  const int64_t size = args.group_size();
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    GatedGroup group(args);
    std::vector<float> out(static_cast<size_t>(size));
    for (int64_t first = 0; first < args.x.cols; first += size) {
      group.load(row, first);
      for (int64_t i = 0; i < size; ++i) {
        const float normed = group.normed[i] * group.inv_rms * group.weight[i];
        out[static_cast<size_t>(i)] = args.gate_first ? normed : normed * GateValue(group.z[i]).value;
      }
      narrow(out.data(), args.out, row, first, size);
    }
  });
}

void gated_norm_backward(const Context& context, const GatedNormBackward& args) {
  check_gated_norm(args);
  for (const View* view : {&args.grad_out, &args.grad_x, &args.grad_z}) check_dtype(*view);
  if (!args.grad_weight.empty()) gated_weight_gradient(context, args);  // first, because gradients may overwrite inputs
  const int64_t size = args.group_size();
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    GatedGroup group(args);
    std::vector<float> g_buffer, grad_x(static_cast<size_t>(size)), grad_z(static_cast<size_t>(size));
    for (int64_t first = 0; first < args.x.cols; first += size) {
      group.load(row, first);
      const float* g = read(args.grad_out, row, first, size, grown(g_buffer, size));
      for (int64_t i = 0; i < size; ++i) {
        const GateValue gate(group.z[i]);
        const float weighted = g[i] * group.weight[i];
        grad_x[static_cast<size_t>(i)] = args.gate_first ? weighted : weighted * gate.value;
        grad_z[static_cast<size_t>(i)] = weighted * (group.x[i] * group.inv_rms) * gate.slope;
      }
      norm_backward(group, size, grad_x.data());
      for (int64_t i = 0; args.gate_first && i < size; ++i) {
        const GateValue gate(group.z[i]);
        grad_z[static_cast<size_t>(i)] = grad_x[static_cast<size_t>(i)] * group.x[i] * gate.slope;
        grad_x[static_cast<size_t>(i)] *= gate.value;
      }
      narrow(grad_x.data(), args.grad_x, row, first, size);
      narrow(grad_z.data(), args.grad_z, row, first, size);
    }
  });
}

}  // namespace megatrain::cpu
