// One chunk of the gated delta rule for one value head, by matmuls. With n tokens, the state S (dk, dv) before them,
// G the running sum of g, E_ij = exp(G_i - G_j) for j <= i and M the inverse of I + A:
//   A = beta_i E_ij (k_i . k_j) for j < i                    U = M (beta V),  W = M (beta exp(G) K)
//   D = U - W S                                              the rows that the chunk adds to the state
//   P = E_ij (q_i . k_j) for j <= i                          out = exp(G) (Q S) + P D
//   S' = exp(G_last) S + (exp(G_last - G) K)^T D
//
// `Math` computes the matmuls and names the type of all sums: fp32 in ops, fp64 where a test wants exact ones. G is
// summed in fp64, because differences of large sums decide E.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "megatrain/ops/cpu/chunk_math.h"
#include "megatrain/ops/cpu/rows.h"
#include "megatrain/ops/delta_rule.h"

namespace megatrain::cpu {

// Contiguous rows of n tokens.
template <class Real>
struct DeltaTokens {
  int64_t count;     // n, at most kDeltaChunk
  const Real* q;     // (n, dk) normalised and scaled
  const Real* k;     // (n, dk) normalised
  const Real* v;     // (n, dv)
  const Real* g;     // (n)
  const Real* beta;  // (n)
};

template <class Real>
struct DeltaGradients {
  Real* q;     // (n, dk) added to
  Real* k;     // (n, dk) added to
  Real* v;     // (n, dv)
  Real* g;     // (n)
  Real* beta;  // (n)
};

template <class Math>
class DeltaChunk {
 public:
  using Real = typename Math::Real;

  DeltaChunk(const Math& math, int64_t key_dim, int64_t value_dim) : math_(math), dk_(key_dim), dv_(value_dim) {
    for (std::vector<Real>* matrix : {&pairs_, &decay_, &a_, &p_, &grad_p_, &grad_a_, &b_})
      matrix->resize(kDeltaChunk * kDeltaChunk);
    for (std::vector<Real>* keys : {&w_, &y_, &read_, &written_}) keys->resize(static_cast<size_t>(kDeltaChunk * dk_));
    for (std::vector<Real>* values : {&d_, &grad_d_, &x_}) values->resize(static_cast<size_t>(kDeltaChunk * dv_));
    rows_.resize(static_cast<size_t>(kDeltaChunk * std::max(dk_, dv_)));
  }

  // Computes what the other functions need. `in` and `state` must stay as they are until the last of them.
  void solve(const DeltaTokens<Real>& in, const Real* state) {
    in_ = in;
    state_ = state;
    sum_decays();
    keys_by_keys();
    for (int64_t i = 0; i < n(); ++i) {
      const Real beta = in.beta[i], scaled = beta * gamma_[i];
      for (int64_t j = 0; j < dv_; ++j) d_[at(i, j, dv_)] = beta * in.v[at(i, j, dv_)];
      for (int64_t j = 0; j < dk_; ++j) w_[at(i, j, dk_)] = scaled * in.k[at(i, j, dk_)];
    }
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j < i; ++j) {
        subtract_row(d_, i, a_[at(i, j, n())], j, dv_);
        subtract_row(w_, i, a_[at(i, j, n())], j, dk_);
      }
    }
    math_({n(), dv_, dk_, {w_.data(), dk_}, {state, dv_}, d_.data(), -1, true});
    math_({n(), n(), dk_, {in.q, dk_}, {in.k, dk_, true}, p_.data()});
    for_pairs([&](size_t pair, int64_t, int64_t) { p_[pair] *= decay_[pair]; }, p_);
  }

  // out (n, dv)
  void write_out(Real* out) {
    math_({n(), dv_, dk_, {in_.q, dk_}, {state_, dv_}, out});
    scale_rows(out, gamma_, dv_, out);
    math_({n(), dv_, n(), {p_.data(), n()}, {d_.data(), dv_}, out, 1, true});
  }

  // The state behind the chunk; `next` may be the state before it.
  void write_state(Real* next) {
    const Real kept = gamma_[n() - 1];
    for (int64_t i = 0; i < dk_ * dv_; ++i) next[i] = kept * state_[i];
    scale_rows(in_.k, rest_, dk_, rows_.data());
    math_({dk_, dv_, n(), {rows_.data(), dk_, true}, {d_.data(), dv_}, next, 1, true});
  }

  // From the gradients of out and of the state behind the chunk; the latter becomes that of the state before it.
  void backward(const Real* grad_out, Real* grad_state, const DeltaGradients<Real>& grad) {
    scale_rows(in_.k, rest_, dk_, rows_.data());
    math_({n(), dv_, n(), {p_.data(), n(), true}, {grad_out, dv_}, grad_d_.data()});
    math_({n(), dv_, dk_, {rows_.data(), dk_}, {grad_state, dv_}, grad_d_.data(), 1, true});
    math_({n(), n(), dv_, {grad_out, dv_}, {d_.data(), dv_, true}, grad_p_.data()});
    for_pairs([](size_t, int64_t, int64_t) {}, grad_p_);
    math_({n(), dk_, dv_, {grad_out, dv_}, {state_, dv_, true}, read_.data()});
    math_({n(), dk_, dv_, {d_.data(), dv_}, {grad_state, dv_, true}, written_.data()});
    solve_backward();
    double carried = 0;  // <S, dS'>
    for (int64_t i = 0; i < dk_ * dv_; ++i) carried += static_cast<double>(state_[i]) * grad_state[i];
    gate_gradients(carried, grad);
    input_gradients(grad);
    const Real kept = gamma_[n() - 1];
    for (int64_t i = 0; i < dk_ * dv_; ++i) grad_state[i] *= kept;
    scale_rows(in_.q, gamma_, dk_, rows_.data());
    math_({dk_, dv_, n(), {rows_.data(), dk_, true}, {grad_out, dv_}, grad_state, 1, true});
    math_({dk_, dv_, n(), {w_.data(), dk_, true}, {grad_d_.data(), dv_}, grad_state, -1, true});
  }

 private:
  int64_t n() const { return in_.count; }
  static size_t at(int64_t row, int64_t column, int64_t columns) { return static_cast<size_t>(row * columns + column); }

  void sum_decays() {
    double sums[kDeltaChunk], sum = 0;
    for (int64_t i = 0; i < n(); ++i) sums[i] = sum += in_.g[i];
    for (int64_t i = 0; i < n(); ++i) {
      gamma_[i] = exp_of(static_cast<Real>(sums[i]));
      rest_[i] = exp_of(static_cast<Real>(sum - sums[i]));
      for (int64_t j = 0; j <= i; ++j) decay_[at(i, j, n())] = exp_of(static_cast<Real>(sums[i] - sums[j]));
    }
  }

  // pairs = E_ij (k_i . k_j) and A
  void keys_by_keys() {
    math_({n(), n(), dk_, {in_.k, dk_}, {in_.k, dk_, true}, pairs_.data()});
    for_pairs(
        [&](size_t pair, int64_t i, int64_t j) {
          pairs_[pair] = i == j ? 0 : pairs_[pair] * decay_[pair];
          a_[pair] = in_.beta[i] * pairs_[pair];
        },
        pairs_);
  }

  // Calls body(place, i, j) for j <= i and sets the other elements of `matrix` to 0.
  template <class Body>
  void for_pairs(const Body& body, std::vector<Real>& matrix) {
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j <= i; ++j) body(at(i, j, n()), i, j);
      for (int64_t j = i + 1; j < n(); ++j) matrix[at(i, j, n())] = 0;
    }
  }

  void subtract_row(std::vector<Real>& matrix, int64_t row, Real times, int64_t other, int64_t columns) {
    Real* to = matrix.data() + row * columns;
    const Real* from = matrix.data() + other * columns;
    for (int64_t j = 0; j < columns; ++j) to[j] -= times * from[j];
  }
  void scale_rows(const Real* from, const Real* by, int64_t columns, Real* to) const {
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j < columns; ++j) to[at(i, j, columns)] = by[i] * from[at(i, j, columns)];
    }
  }

  // X = M^T dD, Y = -M^T (dD S^T), dA = -(X U^T + Y W^T) = -X D^T below the diagonal
  void solve_backward() {
    std::copy(grad_d_.begin(), grad_d_.begin() + n() * dv_, x_.begin());
    math_({n(), dk_, dv_, {grad_d_.data(), dv_}, {state_, dv_, true}, y_.data(), -1});
    for (int64_t i = n() - 1; i >= 0; --i) {
      for (int64_t j = i + 1; j < n(); ++j) {
        subtract_row(x_, i, a_[at(j, i, n())], j, dv_);
        subtract_row(y_, i, a_[at(j, i, n())], j, dk_);
      }
    }
    math_({n(), n(), dv_, {x_.data(), dv_}, {d_.data(), dv_, true}, grad_a_.data(), -1});
    for_pairs(
        [&](size_t pair, int64_t i, int64_t j) {
          if (i == j) grad_a_[pair] = 0;
        },
        grad_a_);
  }

  Real row_dot(const Real* a, const Real* b, int64_t row, int64_t columns) const {
    return static_cast<Real>(sum_of(columns, [&](int64_t j) {
      return static_cast<double>(a[at(row, j, columns)]) * static_cast<double>(b[at(row, j, columns)]);
    }));
  }

  // The gradients of beta and, by that of its running sum, of g.
  void gate_gradients(double carried, const DeltaGradients<Real>& grad) {
    double slopes[kDeltaChunk] = {};
    for (int64_t i = 0; i < n(); ++i) {
      const double keys = gamma_[i] * row_dot(in_.k, y_.data(), i, dk_);
      const double written = rest_[i] * row_dot(in_.k, written_.data(), i, dk_);
      double scores = 0;
      for (int64_t j = 0; j < i; ++j) {
        const size_t pair = at(i, j, n());
        const double by_p = static_cast<double>(grad_p_[pair]) * static_cast<double>(p_[pair]);
        const double by_a = static_cast<double>(grad_a_[pair]) * static_cast<double>(a_[pair]);
        scores += static_cast<double>(grad_a_[pair]) * static_cast<double>(pairs_[pair]);
        slopes[i] += by_p + by_a;
        slopes[j] -= by_p + by_a;
      }
      slopes[i] += gamma_[i] * row_dot(in_.q, read_.data(), i, dk_) + in_.beta[i] * keys - written;
      slopes[n() - 1] += written;
      grad.beta[i] = static_cast<Real>(row_dot(in_.v, x_.data(), i, dv_) + keys + scores);
    }
    slopes[n() - 1] += gamma_[n() - 1] * carried;
    double sum = 0;
    for (int64_t i = n() - 1; i >= 0; --i) grad.g[i] = static_cast<Real>(sum += slopes[i]);
  }

  void input_gradients(const DeltaGradients<Real>& grad) {
    for_pairs(
        [&](size_t pair, int64_t i, int64_t) {
          grad_p_[pair] *= decay_[pair];
          b_[pair] = in_.beta[i] * grad_a_[pair] * decay_[pair];
        },
        b_);
    scale_rows(x_.data(), in_.beta, dv_, grad.v);
    for (int64_t i = 0; i < n(); ++i) {
      for (int64_t j = 0; j < dk_; ++j) {
        const size_t e = at(i, j, dk_);
        grad.q[e] += gamma_[i] * read_[e];
        grad.k[e] += rest_[i] * written_[e] + in_.beta[i] * gamma_[i] * y_[e];
      }
    }
    math_({n(), dk_, n(), {grad_p_.data(), n()}, {in_.k, dk_}, grad.q, 1, true});
    math_({n(), dk_, n(), {grad_p_.data(), n(), true}, {in_.q, dk_}, grad.k, 1, true});
    math_({n(), dk_, n(), {b_.data(), n()}, {in_.k, dk_}, grad.k, 1, true});
    math_({n(), dk_, n(), {b_.data(), n(), true}, {in_.k, dk_}, grad.k, 1, true});
  }

  Math math_;
  int64_t dk_, dv_;
  DeltaTokens<Real> in_{};
  const Real* state_ = nullptr;                                    // (dk, dv)
  Real gamma_[kDeltaChunk];                                        // exp(G)
  Real rest_[kDeltaChunk];                                         // exp(G_last - G)
  std::vector<Real> decay_, pairs_, a_, p_, grad_p_, grad_a_, b_;  // (n, n)
  std::vector<Real> w_, y_, read_, written_;                       // (n, dk); read = dO S^T, written = D dS'^T
  std::vector<Real> d_, grad_d_, x_;                               // (n, dv)
  std::vector<Real> rows_;
};

// The recurrence for one token: updates the state (dk, dv) and writes out (dv). `scratch` holds dv elements.
template <class Real>
void delta_step(const DeltaTokens<Real>& token, int64_t dk, int64_t dv, Real* state, Real* out, Real* scratch) {
  const Real kept = exp_of(token.g[0]);
  std::fill(scratch, scratch + dv, Real{0});
  for (int64_t i = 0; i < dk; ++i) {
    Real* row = state + i * dv;
    for (int64_t j = 0; j < dv; ++j) {
      row[j] *= kept;
      scratch[j] += row[j] * token.k[i];
    }
  }
  for (int64_t j = 0; j < dv; ++j) scratch[j] = token.beta[0] * (token.v[j] - scratch[j]);
  std::fill(out, out + dv, Real{0});
  for (int64_t i = 0; i < dk; ++i) {
    Real* row = state + i * dv;
    for (int64_t j = 0; j < dv; ++j) {
      row[j] += token.k[i] * scratch[j];
      out[j] += row[j] * token.q[i];
    }
  }
}

}  // namespace megatrain::cpu
