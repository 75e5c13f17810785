#include "megatrain/report/memory_figure.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/report/html.h"

namespace megatrain {

namespace {

constexpr size_t kColours = 8;  // in the page's style: tag0 ... tag7, and tags for the rest

std::string style(size_t rank) { return rank < kColours ? fmt::format("tag{}", rank) : "tags"; }

double percent(int64_t bytes, int64_t largest) {
  return 100 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(largest, 1));
}

}  // namespace

int64_t TierMemory::planned_bytes() const {
  int64_t total = 0;
  for (const auto& [tag, bytes] : planned) total += bytes;
  return total;
}

std::string memory_figure(const TierMemory& tier, int64_t largest) {
  auto tags = tier.planned;
  std::erase_if(tags, [](const auto& tag) { return tag.second <= 0; });
  std::stable_sort(tags.begin(), tags.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = fmt::format(
      "<figure class=\"memory\"><figcaption>{}<span class=\"keys\">planned {}{}{}</span></figcaption>\n"
      "<div class=\"bar\" role=\"img\" aria-label=\"{}\">",
      escape_html(tier.title), format_bytes(tier.planned_bytes()),
      tier.used > 0 ? fmt::format(", used now {}", format_bytes(tier.used)) : "",
      tier.peak > 0 ? fmt::format(", measured peak {}", format_bytes(tier.peak)) : "", escape_html(tier.title));
  for (size_t i = 0; i < tags.size(); ++i)
    text += fmt::format("<i class=\"{}\" style=\"width:{:.3f}%\" title=\"{}: {}\"></i>", style(i),
                        percent(tags[i].second, largest), escape_html(tags[i].first), format_bytes(tags[i].second));
  const int64_t marked = tier.used > 0 ? tier.used : tier.peak;
  if (marked > 0)
    text += fmt::format("<b style=\"left:{:.3f}%\" title=\"{} {}\"></b>", percent(marked, largest),
                        tier.used > 0 ? "used now" : "measured peak", format_bytes(marked));
  text += "</div>\n<ul class=\"tags\">";
  for (size_t i = 0; i < tags.size(); ++i)
    text += fmt::format("<li><i class=\"{}\"></i><span>{}</span><b>{}</b></li>", style(i), escape_html(tags[i].first),
                        format_bytes(tags[i].second));
  return text + "</ul></figure>\n";
}

}  // namespace megatrain
