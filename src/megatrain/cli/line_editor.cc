#include "megatrain/cli/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <optional>
#include <string_view>

#include "megatrain/base/error.h"
#include "megatrain/cli/typed_keys.h"

namespace megatrain {

struct LineEditor::Editor {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string prompt;
  const volatile std::sig_atomic_t* interrupted = nullptr;
  std::optional<TypedKeys> keys;
  FILE* output = nullptr;
  bool marks_pastes = false;
  std::optional<bool> begun_by_paste;  // whether the line began with a paste; none: the line is still empty

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

  // Returns 1 for a character, 0 at the end of the input, -1 for a signal. libedit's own version would continue after a
  // signal.
  static int read_character(EditLine* edit, wchar_t* character) {
    for (;;) {
      switch (of(edit).keys->next(*character)) {
        case TypedKeys::Got::character: return of(edit).note_character();
        case TypedKeys::Got::end: return 0;
        case TypedKeys::Got::interrupt: return -1;
        case TypedKeys::Got::resumed: of(edit).take_terminal_again(); break;
        case TypedKeys::Got::quit: of(edit).quit(); break;
      }
    }
  }

  int note_character() {
    if (!begun_by_paste) begun_by_paste = keys->pasted();
    return 1;
  }

  // Sends SIGQUIT as the terminal would, but restores the terminal first.
  void quit() const {
    if (marks_pastes) write(kMarkNoPastes);
    el_set(edit, EL_PREP_TERM, 0);
    ::kill(0, SIGQUIT);
    take_terminal_again();  // reached only if the signal is ignored
  }

  void take_terminal_again() const {
    el_set(edit, EL_PREP_TERM, 0);  // otherwise libedit believes that the terminal is raw already
    el_set(edit, EL_PREP_TERM, 1);
    if (marks_pastes) write(kMarkPastes);  // the shell turned them off
    el_set(edit, EL_REFRESH);
  }

  void write(std::string_view text) const {
    std::fwrite(text.data(), 1, text.size(), output);
    std::fflush(output);
  }
};

LineEditor::LineEditor(const volatile std::sig_atomic_t* interrupted) : editor_(std::make_unique<Editor>()) {
  std::setlocale(LC_CTYPE, "C.UTF-8");  // libedit decodes bytes with it
  Editor& editor = *editor_;
  editor.interrupted = interrupted;
  editor.keys.emplace(interrupted);
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
  // TypedKeys distinguishes typing from pasting, so the terminal itself must not turn bytes into signals or line ends.
  el_set(editor.edit, EL_SETTY, "-d", "-isig", "-ixon", "-icrnl", "-inlcr", nullptr);
  el_set(editor.edit, EL_GETCFN, Editor::read_character);
  el_set(editor.edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  const char* terminal = nullptr;
  el_get(editor.edit, EL_TERMINAL, &terminal);
  editor.marks_pastes = terminal && std::string_view(terminal) != "dumb";
}

LineEditor::~LineEditor() = default;

LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line) {
  Editor& editor = *editor_;
  editor.prompt = prompt;
  el_resize(editor.edit);
  editor.begun_by_paste.reset();
  editor.keys->take_typed_ahead();
  el_set(editor.edit, EL_PREP_TERM, 1);  // raw before the prompt shows; el_gets would switch only afterwards
  if (editor.marks_pastes) editor.write(kMarkPastes);
  int count = 0;
  const char* got = el_gets(editor.edit, &count);
  if (editor.marks_pastes) editor.write(kMarkNoPastes);
  if (*editor.interrupted != 0 || !got || count <= 0) {
    editor.write("\n");
    el_reset(editor.edit);
    return *editor.interrupted != 0 ? Got::interrupt : Got::end;
  }
  line.assign(got, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) history(editor.history, &event, H_ENTER, line.c_str());
  if (editor.keys->pasted()) return editor.begun_by_paste.value_or(false) ? Got::pasted_part : Got::part;
  if (!line.ends_with('\\') || editor.keys->pasted_before()) return Got::line;
  line.pop_back();
  return Got::part;
}

}  // namespace megatrain
