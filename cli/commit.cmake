# Writes build_commit.h, only when the commit changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
  "/* Generated. */\n#define CLI_BUILD_COMMIT \"${commit}\"\n" @ONLY)
