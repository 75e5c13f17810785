#include "megatrain/chat/jinja/big_integer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

namespace megatrain::jinja {
namespace {

constexpr uint64_t kBase = 1'000'000'000;
constexpr size_t kLimbDigits = 9;

}  // namespace

BigInteger::BigInteger(int64_t value) : negative_(value < 0) {
  for (uint64_t rest = negative_ ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value); rest > 0;
       rest /= kBase) {
    limbs_.push_back(static_cast<uint32_t>(rest % kBase));
  }
}

std::optional<BigInteger> BigInteger::of_digits(std::string_view text) {
  BigInteger out;
  out.negative_ = text.starts_with('-');
  if (out.negative_) text.remove_prefix(1);
  if (text.empty() || text.size() > kMaxDigits || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  for (size_t end = text.size(); end > 0;) {
    const size_t begin = end > kLimbDigits ? end - kLimbDigits : 0;
    uint32_t limb = 0;
    std::from_chars(text.data() + begin, text.data() + end, limb);
    out.limbs_.push_back(limb);
    end = begin;
  }
  out.trim();
  return out;
}

BigInteger BigInteger::of_whole(double value) { return *of_digits(fmt::format("{:.0f}", value)); }

std::string BigInteger::digits() const {
  if (limbs_.empty()) return "0";
  std::string out = fmt::format("{}{}", negative_ ? "-" : "", limbs_.back());
  for (size_t i = limbs_.size() - 1; i-- > 0;) out += fmt::format("{:09}", limbs_[i]);
  return out;
}

std::optional<int64_t> BigInteger::small() const {
  if (limbs_.size() > 3) return std::nullopt;
  const std::string text = digits();
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

double BigInteger::to_double() const { return std::strtod(digits().c_str(), nullptr); }

void BigInteger::trim() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
}

BigInteger BigInteger::operator-() const {
  BigInteger out = *this;
  out.negative_ = !negative_ && !limbs_.empty();
  return out;
}

BigInteger BigInteger::operator+(const BigInteger& other) const {
  const bool adds = negative_ == other.negative_;
  const bool swapped = !adds && compare_magnitudes(*this, other) < 0;
  const BigInteger& large = swapped ? other : *this;
  const BigInteger& little = swapped ? *this : other;
  BigInteger out;
  out.negative_ = large.negative_;
  int64_t carry = 0;
  for (size_t i = 0; i < std::max(large.limbs_.size(), little.limbs_.size()) || carry != 0; ++i) {
    const int64_t a = i < large.limbs_.size() ? large.limbs_[i] : 0;
    const int64_t b = i < little.limbs_.size() ? little.limbs_[i] : 0;
    int64_t sum = carry + a + (adds ? b : -b);
    carry = sum < 0 ? -1 : sum >= static_cast<int64_t>(kBase) ? 1 : 0;
    sum -= carry * static_cast<int64_t>(kBase);
    out.limbs_.push_back(static_cast<uint32_t>(sum));
  }
  out.trim();
  return out;
}

BigInteger BigInteger::operator*(const BigInteger& other) const {
  BigInteger out;
  out.negative_ = negative_ != other.negative_;
  out.limbs_.assign(limbs_.size() + other.limbs_.size(), 0);
  for (size_t i = 0; i < limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < other.limbs_.size() || carry > 0; ++j) {
      const uint64_t b = j < other.limbs_.size() ? other.limbs_[j] : 0;
      const uint64_t sum = out.limbs_[i + j] + limbs_[i] * b + carry;
      out.limbs_[i + j] = static_cast<uint32_t>(sum % kBase);
      carry = sum / kBase;
    }
  }
  out.trim();
  return out;
}

std::strong_ordering BigInteger::compare_magnitudes(const BigInteger& a, const BigInteger& b) {
  if (a.limbs_.size() != b.limbs_.size()) return a.limbs_.size() <=> b.limbs_.size();
  return std::lexicographical_compare_three_way(a.limbs_.rbegin(), a.limbs_.rend(), b.limbs_.rbegin(), b.limbs_.rend());
}

std::strong_ordering BigInteger::operator<=>(const BigInteger& other) const {
  if (negative_ != other.negative_) return negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  return negative_ ? compare_magnitudes(other, *this) : compare_magnitudes(*this, other);
}

}  // namespace megatrain::jinja
