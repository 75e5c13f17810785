// Python's integers past 64 bits, as far as templates need them: read, written, compared, added and multiplied exactly.
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
  // Python refuses to read or write an integer of more digits.
  static constexpr size_t kMaxDigits = 4300;

  BigInteger() = default;
  explicit BigInteger(int64_t value);
  // Of decimal digits, a minus sign before them or not; nothing where it is none or has more than kMaxDigits.
  static std::optional<BigInteger> of_digits(std::string_view text);
  static BigInteger of_whole(double value);  // of a finite double without a fraction

  std::string digits() const;  // in decimal, with a minus sign where it is negative
  std::optional<int64_t> small() const;
  double to_double() const;  // infinite past the largest double
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

  bool negative_ = false;        // never of zero
  std::vector<uint32_t> limbs_;  // base 10^9, the lowest first, none leading that is zero
};

}  // namespace megatrain::jinja
