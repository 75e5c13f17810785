// Python's integers beyond 64 bits, as far as templates need them: read, written, compared, added and multiplied
// exactly.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::jinja {

class BigInteger {
 public:
  // Python refuses to read or write integers with more digits.
  static constexpr size_t kMaxDigits = 4300;

  BigInteger() = default;
  explicit BigInteger(int64_t value);
  // From decimal digits with an optional minus sign; empty if it is not a number or has more than kMaxDigits.
  static std::optional<BigInteger> of_digits(std::string_view text);
  static BigInteger of_whole(double value);  // `value` is finite and has no fraction

  std::string digits() const;  // in decimal, with a minus sign if negative
  std::optional<int64_t> small() const;
  double to_double() const;  // infinite beyond the largest double
  bool negative() const { return negative_; }
  bool odd() const { return !limbs_.empty() && (limbs_[0] & 1) != 0; }
  size_t limbs() const { return limbs_.size(); }

  BigInteger operator-() const;
  BigInteger operator+(const BigInteger& other) const;
  BigInteger operator-(const BigInteger& other) const { return *this + -other; }
  BigInteger operator*(const BigInteger& other) const;
  std::strong_ordering operator<=>(const BigInteger& other) const;
  bool operator==(const BigInteger& other) const = default;

 private:
  static std::strong_ordering compare_magnitudes(const BigInteger& a, const BigInteger& b);
  void trim();

  bool negative_ = false;        // never for zero
  std::vector<uint32_t> limbs_;  // base 10^9, lowest first, no leading zeros
};

}  // namespace megatrain::jinja
