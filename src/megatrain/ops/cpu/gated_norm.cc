#include "megatrain/ops/gated_norm.h"

#include <cmath>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

// One head of one row as fp32.
class GatedHead {
 public:
  GatedHead(const View& x, const View& z, const View& weight, float eps) : x_(x), z_(z), weight_(weight), eps_(eps) {}

  void load(int64_t row, int64_t first) {
    const int64_t size = weight_.cols;
    x = read(x_, row, first, size, grown(x_buffer_, size));
    z = read(z_, row, first, size, grown(z_buffer_, size));
    weight = read(weight_, 0, 0, size, grown(weight_buffer_, size));
    const double squares = sum_of(size, [&](int64_t i) { return static_cast<double>(x[i]) * x[i]; });
    inv_rms = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(size) + static_cast<double>(eps_)));
  }

  const float *x = nullptr, *z = nullptr, *weight = nullptr;
  float inv_rms = 0;

 private:
  const View &x_, &z_, &weight_;
  float eps_;
  std::vector<float> x_buffer_, z_buffer_, weight_buffer_;
};

// silu(z) and its slope
struct GateValue {
  explicit GateValue(float z) {
    const float e = exp_f32(-z), s = 1.0f / (1.0f + e);
    value = z / (1.0f + e);
    slope = s * (1.0f + z * (e * s));
  }
  float value, slope;
};

void check_gated_norm(const View& x, const View& z, const View& weight) {
  for (const View* view : {&x, &z, &weight}) check_dtype(*view);
  ensure(x.cols % weight.cols == 0 && z.cols == x.cols, "a row of a gated norm has whole heads of the weight's size");
}

// grad_weight[c] = sum over rows and heads of grad_out * x * inv_rms * silu(z). Rows of a block are added in order, and
// then the blocks.
void gated_weight_gradient(const Context& context, const GatedNormBackward& args) {
  constexpr int64_t kRows = 64;
  const int64_t size = args.weight.cols, heads = args.x.cols / size, blocks = ceil_div(args.x.rows, kRows);
  std::vector<double> partials(static_cast<size_t>(blocks * size));
  context.team.parallel_for(blocks, [&](int64_t block) {
    double* sum = partials.data() + block * size;
    GatedHead head(args.x, args.z, args.weight, args.eps);
    std::vector<float> g_buffer;
    const int64_t end = std::min(args.x.rows, (block + 1) * kRows);
    for (int64_t row = block * kRows; row < end; ++row) {
      for (int64_t first = 0; first < heads * size; first += size) {
        head.load(row, first);
        const float* g = read(args.grad_out, row, first, size, grown(g_buffer, size));
        for (int64_t i = 0; i < size; ++i)
          sum[i] += static_cast<double>(g[i]) * (head.x[i] * head.inv_rms * GateValue(head.z[i]).value);
      }
    }
  });
  float* grad_weight = args.grad_weight.as<float>();
  for (int64_t i = 0; i < size; ++i) {
    double sum = args.accumulate ? grad_weight[i] : 0;
    for (int64_t block = 0; block < blocks; ++block) sum += partials[static_cast<size_t>(block * size + i)];
    grad_weight[i] = static_cast<float>(sum);
  }
}

}  // namespace

void gated_norm_forward(const Context& context, const GatedNormForward& args) {
  check_gated_norm(args.x, args.z, args.weight);
  check_dtype(args.out);
  const int64_t size = args.weight.cols, heads = args.x.cols / size;
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    GatedHead head(args.x, args.z, args.weight, args.eps);
    std::vector<float> out(static_cast<size_t>(size));
    for (int64_t first = 0; first < heads * size; first += size) {
      head.load(row, first);
      for (int64_t i = 0; i < size; ++i)
        out[static_cast<size_t>(i)] = head.x[i] * head.inv_rms * head.weight[i] * GateValue(head.z[i]).value;
      narrow(out.data(), args.out, row, first, size);
    }
  });
}

// With r = inv_rms and h = grad_out * weight * silu(z): d = r h - x r^3 mean(h x)
void gated_norm_backward(const Context& context, const GatedNormBackward& args) {
  check_gated_norm(args.x, args.z, args.weight);
  for (const View* view : {&args.grad_out, &args.grad_x, &args.grad_z}) check_dtype(*view);
  if (!args.grad_weight.empty()) gated_weight_gradient(context, args);  // first, because gradients may overwrite inputs
  const int64_t size = args.weight.cols, heads = args.x.cols / size;
  for_rows(context.team, args.x.rows, args.x.cols, [&](int64_t row) {
    GatedHead head(args.x, args.z, args.weight, args.eps);
    std::vector<float> g_buffer, grad_x(static_cast<size_t>(size)), grad_z(static_cast<size_t>(size));
    for (int64_t first = 0; first < heads * size; first += size) {
      head.load(row, first);
      const float* g = read(args.grad_out, row, first, size, grown(g_buffer, size));
      for (int64_t i = 0; i < size; ++i) {
        const GateValue gate(head.z[i]);
        const float weighted = g[i] * head.weight[i];
        grad_x[static_cast<size_t>(i)] = weighted * gate.value;
        grad_z[static_cast<size_t>(i)] = weighted * (head.x[i] * head.inv_rms) * gate.slope;
      }
      const double dot =
          sum_of(size, [&](int64_t i) { return static_cast<double>(grad_x[static_cast<size_t>(i)]) * head.x[i]; });
      const double r = head.inv_rms;
      const float along = static_cast<float>(r * r * r * dot / static_cast<double>(size));
      for (int64_t i = 0; i < size; ++i) {
        float& grad = grad_x[static_cast<size_t>(i)];
        grad = grad * head.inv_rms - head.x[i] * along;
      }
      narrow(grad_x.data(), args.grad_x, row, first, size);
      narrow(grad_z.data(), args.grad_z, row, first, size);
    }
  });
}

}  // namespace megatrain::cpu
