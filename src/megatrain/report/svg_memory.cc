#include "megatrain/report/svg_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/report/html.h"
#include "megatrain/report/svg_axis.h"

namespace megatrain {

namespace {

constexpr double kWidth = 1060, kLeft = 8, kRight = 40, kTop = 20, kBar = 30, kHeight = 78;
constexpr size_t kColours = 8;  // of the page: tag0 ... tag7, and tags for what is left

std::string style(size_t rank) { return rank < kColours ? fmt::format("tag{}", rank) : "tags"; }

}  // namespace

std::string svg_memory(const TierMemory& tier, int64_t largest) {
  auto tags = tier.planned;
  std::erase_if(tags, [](const auto& tag) { return tag.second <= 0; });
  std::stable_sort(tags.begin(), tags.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  int64_t total = 0;
  for (const auto& [tag, bytes] : tags) total += bytes;
  const Scale x{
      .low = 0, .high = static_cast<double>(std::max<int64_t>(largest, 1)), .from = kLeft, .to = kWidth - kRight};
  std::string text = fmt::format(
      "<figure><figcaption>{}<span class=\"keys\">planned {}{}</span></figcaption>\n<svg class=\"memory\" role=\"img\" "
      "aria-label=\"{}\" viewBox=\"0 0 {} {}\">\n",
      escape_html(tier.title), format_bytes(total),
      tier.peak > 0 ? fmt::format(", measured peak {}", format_bytes(tier.peak)) : "", escape_html(tier.title), kWidth,
      kHeight);
  for (const Tick& tick : byte_ticks(x.high, 8)) {
    const std::string at = pixels(x(tick.value));
    text += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text class=\"tick\" text-anchor=\"middle\" "
        "x=\"{}\" y=\"{}\">{}</text>\n",
        at, at, kTop, kTop + kBar + 6, at, kTop + kBar + 22, tick.label);
  }
  int64_t from = 0;
  for (size_t i = 0; i < tags.size(); ++i) {
    const auto& [tag, bytes] = tags[i];
    const double begin = x(static_cast<double>(from)), end = x(static_cast<double>(from + bytes));
    text += fmt::format(
        "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}: {}</title></rect>\n", style(i),
        pixels(begin), kTop, pixels(std::max(0.0, end - begin)), kBar, escape_html(tag), format_bytes(bytes));
    from += bytes;
  }
  if (tier.peak > 0) {
    const double at = x(static_cast<double>(tier.peak));
    const bool left = at > kWidth / 2;
    text += fmt::format(
        "<line class=\"peak\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"tick\" text-anchor=\"{3}\" "
        "x=\"{4}\" y=\"{5}\">peak {6}</text>\n",
        pixels(at), kTop - 10, kTop + kBar + 2, left ? "end" : "start", pixels(at + (left ? -6 : 6)), kTop - 4,
        format_bytes(tier.peak));
  }
  text += "</svg>\n<ul class=\"tags\">";
  for (size_t i = 0; i < tags.size(); ++i)
    text += fmt::format("<li><i class=\"{}\"></i><span>{}</span><b>{}</b></li>", style(i), escape_html(tags[i].first),
                        format_bytes(tags[i].second));
  return text + "</ul></figure>\n";
}

}  // namespace megatrain
