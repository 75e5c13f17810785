// How the page looks, in light and dark and on a phone, and what its script does: curves and lanes drawn to the width
// that there is, with axes and smoothing to choose, values under the pointer, and of a live page what comes.
#pragma once

namespace megatrain {

extern const char* const kReportStyle;   // CSS
extern const char* const kReportScript;  // JavaScript

}  // namespace megatrain
