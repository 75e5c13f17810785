// The page's style, for light and dark mode and for phones, and its script. Curves and lanes stretch to the available
// width. Axes and smoothing can be chosen, values are shown under the pointer, and a live page is updated.
#pragma once

namespace megatrain {

extern const char* const kReportStyle;   // CSS
extern const char* const kReportScript;  // JavaScript

}  // namespace megatrain
