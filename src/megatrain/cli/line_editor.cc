#include "megatrain/cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cwchar>

#include "megatrain/base/error.h"

namespace megatrain {

struct LineEditor::Editor {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string prompt;
  const volatile std::sig_atomic_t* interrupted = nullptr;
  FILE* output = nullptr;

  ~Editor() {
    if (edit) el_end(edit);
    if (history) history_end(history);
  }

  static Editor& of(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<Editor*>(data);
  }
  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

  // A character of standard input: 1, 0 at its end, -1 for a signal. libedit's own goes on after a signal.
  static int read_character(EditLine* edit, wchar_t* character) {
    constexpr int kLookForSignal_ms = 50;
    const Editor& editor = of(edit);
    std::mbstate_t state{};
    for (;;) {
      if (*editor.interrupted != 0) return -1;
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN};
      if (::poll(&input, 1, kLookForSignal_ms) <= 0) continue;
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0) continue;
      if (count == 0) return 0;
      const size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // more of it is to come
      if (used == static_cast<size_t>(-1)) {
        state = {};
        continue;
      }
      return 1;
    }
  }
};

LineEditor::LineEditor(const volatile std::sig_atomic_t* interrupted) : editor_(std::make_unique<Editor>()) {
  std::setlocale(LC_CTYPE, "C.UTF-8");  // libedit turns bytes into characters by it
  Editor& editor = *editor_;
  editor.interrupted = interrupted;
  editor.output = isatty(STDOUT_FILENO) == 1 ? stdout : stderr;
  editor.edit = el_init("megatrain", stdin, editor.output, stderr);
  editor.history = history_init();
  if (!editor.edit || !editor.history) fail_io("the terminal cannot be used for editing; give input by a pipe");
  HistEvent event;
  history(editor.history, &event, H_SETSIZE, 1000);
  history(editor.history, &event, H_SETUNIQUE, 1);
  el_set(editor.edit, EL_CLIENTDATA, &editor);
  el_set(editor.edit, EL_PROMPT, Editor::show_prompt);
  el_set(editor.edit, EL_EDITOR, "emacs");
  el_set(editor.edit, EL_HIST, history, editor.history);
  el_set(editor.edit, EL_SIGNAL, 0);
  el_set(editor.edit, EL_GETCFN, Editor::read_character);
  el_set(editor.edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() = default;

LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line) {
  Editor& editor = *editor_;
  editor.prompt = prompt;
  el_resize(editor.edit);
  int count = 0;
  const char* got = el_gets(editor.edit, &count);
  if (*editor.interrupted != 0 || !got || count <= 0) {
    std::fputc('\n', editor.output);
    std::fflush(editor.output);
    el_reset(editor.edit);
    return *editor.interrupted != 0 ? Got::interrupt : Got::end;
  }
  line.assign(got, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) history(editor.history, &event, H_ENTER, line.c_str());
  return Got::line;
}

}  // namespace megatrain
