# embed.cmake: files as read-only bytes inside a program.

# moe_embed(TARGET SYMBOL FILE): defines in TARGET, for the file's contents followed by one zero byte,
#   extern const unsigned char SYMBOL[];
#   extern const unsigned char SYMBOL_end[];   (the address of the zero byte: SYMBOL_end - SYMBOL is the size)
# FILE may be made by a custom command; a change of FILE rebuilds TARGET.
function(moe_embed target symbol file)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
    .section .rodata
    .global @symbol@
    .global @symbol@_end
    .balign 16
@symbol@:
    .incbin "@file@"
@symbol@_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
]])
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file})
  target_sources(${target} PRIVATE ${source})
endfunction()
