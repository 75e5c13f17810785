# Writes OUTPUT, a source file with VERSION and the commit of SOURCE_DIR; leaves it alone if it is already up to date.
set(commit unknown)
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE_DIR} diff --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
    if(changed)
      string(APPEND commit "-changed")
    endif()
  endif()
endif()
set(text "#include \"megatrain/base/version.h\"

namespace megatrain {
const char* const kVersion = \"${VERSION}\";
const char* const kBuildCommit = \"${commit}\";
}  // namespace megatrain
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
