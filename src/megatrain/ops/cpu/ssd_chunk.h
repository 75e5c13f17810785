// One chunk of Mamba 2's recurrence for one head, by matmuls. With n tokens, the state H (N, P) before them, G the
// running sum of g and E_ij = exp(G_i - G_j) for j <= i:
//   V = step X                                               what the tokens write
//   M = E_ij (c_i . b_j) for j <= i                          out = exp(G) (C H) + M V + skip X
//   H' = exp(G_last) H + (exp(G_last - G) B)^T V
//
// `Math` as in chunk_math.h. G is summed in fp64, because differences of large sums decide E.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "megatrain/ops/cpu/chunk_math.h"
#include "megatrain/ops/cpu/rows.h"
#include "megatrain/ops/ssd.h"

namespace megatrain::cpu {

// Contiguous rows of n tokens.
template <class Real>
struct SsdTokens {
  int64_t count;     // n, at most kSsdChunk
  const Real* x;     // (n, P)
  const Real* b;     // (n, N)
  const Real* c;     // (n, N)
  const Real* step;  // (n)
  const Real* g;     // (n)
  Real skip;
};

template <class Real>
struct SsdGradients {
  Real* x;       // (n, P)
  Real* b;       // (n, N) added to
  Real* c;       // (n, N) added to
  Real* step;    // (n)
  Real* g;       // (n)
  double* skip;  // added to
};

template <class Math>
class SsdChunk {
 public:
  using Real = typename Math::Real;

  SsdChunk(const Math& math, int64_t state_dim, int64_t head_dim) : math_(math), states_(state_dim), width_(head_dim) {
    for (std::vector<Real>* matrix : {&decay_, &pairs_, &grad_pairs_}) matrix->resize(kSsdChunk * kSsdChunk);
    for (std::vector<Real>* rows : {&written_, &grad_written_, &read_, &carried_})
      rows->resize(static_cast<size_t>(kSsdChunk * width_));
    rows_.resize(static_cast<size_t>(kSsdChunk * states_));
  }

  // Computes what the other functions need. `in` and `state` must stay as they are until the last of them.
  void solve(const SsdTokens<Real>& in, const Real* state) {
    in_ = in;
    state_ = state;
    sum_decays();
    math_({n(), n(), states_, {in.c, states_}, {in.b, states_, true}, pairs_.data()});
    for_pairs([&](size_t pair) { pairs_[pair] *= decay_[pair]; }, pairs_);
    scale_rows(in.x, in.step, width_, written_.data());
  }

  // out (n, P)
  void write_out(Real* out) {
    math_({n(), width_, states_, {in_.c, states_}, {state_, width_}, out});
    scale_rows(out, kept_, width_, out);
    math_({n(), width_, n(), {pairs_.data(), n()}, {written_.data(), width_}, out, 1, true});
    for (int64_t i = 0; i < n() * width_; ++i) out[i] += in_.skip * in_.x[i];
  }

  // The state behind the chunk; `next` may be the state before it.
  void write_state(Real* next) {
    const Real kept = kept_[n() - 1];
    for (int64_t i = 0; i < states_ * width_; ++i) next[i] = kept * state_[i];
    scale_rows(in_.b, rest_, states_, rows_.data());
    math_({states_, width_, n(), {rows_.data(), states_, true}, {written_.data(), width_}, next, 1, true});
  }

  // From the gradients of out and of the state behind the chunk; the latter becomes that of the state before it.
  void backward(const Real* grad_out, Real* grad_state, const SsdGradients<Real>& grad) {
    math_({n(), n(), width_, {grad_out, width_}, {written_.data(), width_, true}, grad_pairs_.data()});
    math_({n(), width_, states_, {in_.c, states_}, {state_, width_}, read_.data()});
    scale_rows(read_.data(), kept_, width_, read_.data());
    math_({n(), width_, states_, {in_.b, states_}, {grad_state, width_}, carried_.data()});
    scale_rows(carried_.data(), rest_, width_, carried_.data());
    std::copy_n(carried_.begin(), n() * width_, grad_written_.begin());
    math_({n(), width_, n(), {pairs_.data(), n(), true}, {grad_out, width_}, grad_written_.data(), 1, true});
    decay_gradients(grad_out, grad_state, grad.g);
    token_gradients(grad_out, grad);
    state_part(grad_out, width_, state_, kept_, grad.c);
    state_part(written_.data(), width_, grad_state, rest_, grad.b);
    for_pairs([&](size_t pair) { grad_pairs_[pair] *= decay_[pair]; }, grad_pairs_);
    math_({n(), states_, n(), {grad_pairs_.data(), n()}, {in_.b, states_}, grad.c, 1, true});
    math_({n(), states_, n(), {grad_pairs_.data(), n(), true}, {in_.c, states_}, grad.b, 1, true});
    const Real kept = kept_[n() - 1];
    for (int64_t i = 0; i < states_ * width_; ++i) grad_state[i] *= kept;
    scale_rows(in_.c, kept_, states_, rows_.data());
    math_({states_, width_, n(), {rows_.data(), states_, true}, {grad_out, width_}, grad_state, 1, true});
  }

 private:
  int64_t n() const { return in_.count; }
  static size_t at(int64_t row, int64_t column, int64_t columns) { return static_cast<size_t>(row * columns + column); }

  void sum_decays() {
    double sums[kSsdChunk], sum = 0;
    for (int64_t i = 0; i < n(); ++i) sums[i] = sum += in_.g[i];
    for (int64_t i = 0; i < n(); ++i) {
      kept_[i] = exp_of(static_cast<Real>(sums[i]));
      rest_[i] = exp_of(static_cast<Real>(sum - sums[i]));
      for (int64_t j = 0; j <= i; ++j) decay_[at(i, j, n())] = exp_of(static_cast<Real>(sums[i] - sums[j]));
    }
  }

  // Calls body(place) for j <= i and sets the other elements of `matrix` to 0.
  template <class Body>
  void for_pairs(const Body& body, std::vector<Real>& matrix) {
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j <= i; ++j) body(at(i, j, n()));
      for (int64_t j = i + 1; j < n(); ++j) matrix[at(i, j, n())] = 0;
    }
  }
  void scale_rows(const Real* from, const Real* by, int64_t columns, Real* to) const {
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j < columns; ++j) to[at(i, j, columns)] = by[i] * from[at(i, j, columns)];
    }
  }
  double row_dot(const Real* a, const Real* b, int64_t row) const {
    return sum_of(width_, [&](int64_t j) {
      return static_cast<double>(a[at(row, j, width_)]) * static_cast<double>(b[at(row, j, width_)]);
    });
  }

  // to (n, N) += by (rows state^T), with rows (n, P)
  void state_part(const Real* rows, int64_t columns, const Real* state, const Real* by, Real* to) {
    math_({n(), states_, columns, {rows, columns}, {state, columns, true}, rows_.data()});
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j < states_; ++j) to[at(i, j, states_)] += by[i] * rows_[at(i, j, states_)];
    }
  }

  // The gradient of g, by that of its running sum. A pair of a token with itself does not decay.
  void decay_gradients(const Real* grad_out, const Real* grad_state, Real* grad_g) const {
    double slopes[kSsdChunk] = {}, behind = 0;
    for (int64_t i = 0; i < states_ * width_; ++i)
      behind += static_cast<double>(state_[i]) * static_cast<double>(grad_state[i]);
    behind *= static_cast<double>(kept_[n() - 1]);
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j < i; ++j) {
        const double by_pair =
            static_cast<double>(grad_pairs_[at(i, j, n())]) * static_cast<double>(pairs_[at(i, j, n())]);
        slopes[i] += by_pair;
        slopes[j] -= by_pair;
      }
      const double carried = row_dot(carried_.data(), written_.data(), i);
      slopes[i] += row_dot(read_.data(), grad_out, i) - carried;
      behind += carried;
    }
    slopes[n() - 1] += behind;
    double sum = 0;
    for (int64_t i = n() - 1; i >= 0; --i) grad_g[i] = static_cast<Real>(sum += slopes[i]);
  }

  void token_gradients(const Real* grad_out, const SsdGradients<Real>& grad) const {
    for (int64_t i = 0; i < n(); ++i) {
      grad.step[i] = static_cast<Real>(row_dot(in_.x, grad_written_.data(), i));
      *grad.skip += row_dot(in_.x, grad_out, i);
      for (int64_t j = 0; j < width_; ++j) {
        const size_t e = at(i, j, width_);
        grad.x[e] = in_.step[i] * grad_written_[e] + in_.skip * grad_out[e];
      }
    }
  }

  Math math_;
  int64_t states_, width_;  // N, P
  SsdTokens<Real> in_{};
  const Real* state_ = nullptr;                   // (N, P)
  Real kept_[kSsdChunk];                          // exp(G)
  Real rest_[kSsdChunk];                          // exp(G_last - G)
  std::vector<Real> decay_, pairs_, grad_pairs_;  // (n, n) E, M and its gradient
  std::vector<Real> written_, grad_written_;      // (n, P) V and its gradient
  std::vector<Real> read_;                        // (n, P) exp(G) (C H)
  std::vector<Real> carried_;                     // (n, P) exp(G_last - G) (B dH')
  std::vector<Real> rows_;                        // (n, N)
};

// The recurrence for one token: updates the state (N, P) and writes out (P).
template <class Real>
void ssd_step(const SsdTokens<Real>& token, int64_t state_dim, int64_t head_dim, Real* state, Real* out) {
  const Real kept = exp_of(token.g[0]);
  std::fill(out, out + head_dim, Real{0});
  for (int64_t i = 0; i < state_dim; ++i) {
    Real* row = state + i * head_dim;
    const Real by = token.step[0] * token.b[i];
    for (int64_t j = 0; j < head_dim; ++j) {
      row[j] = kept * row[j] + by * token.x[j];
      out[j] += row[j] * token.c[i];
    }
  }
  for (int64_t j = 0; j < head_dim; ++j) out[j] += token.skip * token.x[j];
}

}  // namespace megatrain::cpu
