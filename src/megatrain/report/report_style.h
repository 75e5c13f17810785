// How the report looks, in light and dark, and the little it does: values under the pointer.
#pragma once

namespace megatrain {

extern const char* const kReportStyle;   // CSS
extern const char* const kReportScript;  // JavaScript

}  // namespace megatrain
