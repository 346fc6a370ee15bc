# dependencies.cmake: every library that is not ours, as one imported target each.
#
# From Debian (build.sh's package table): PkgConfig::zstd, jansson, pcre2, utf8proc, sodium, cmocka, event.
# From the toolchain (cmake/toolchain.sh): toolchain::glslang, toolchain::spirv_tools, toolchain::quickjs,
#   toolchain::vulkan (headers at least 1.4.309; links this machine's loader), and jinja_js (cmake/jinja.sh: one file).

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
pkg_check_modules(event REQUIRED IMPORTED_TARGET libevent_core libevent_extra libevent_pthreads)

if(NOT MOEC_TOOLCHAIN)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/cmake/toolchain.sh --path OUTPUT_VARIABLE MOEC_TOOLCHAIN
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT EXISTS ${MOEC_TOOLCHAIN}/VERSIONS)
  message(FATAL_ERROR "the toolchain is not built (${MOEC_TOOLCHAIN}): run ./build.sh once")
endif()

# A Vulkan SDK that is new enough stands in for all but QuickJS (toolchain.sh decides, and leaves these out then).
if(EXISTS ${MOEC_TOOLCHAIN}/include/vulkan)
  set(shader_root ${MOEC_TOOLCHAIN})
else()
  set(shader_root $ENV{VULKAN_SDK})
endif()

# toolchain_library(NAME ROOT ARCHIVES...): toolchain::NAME with ROOT/include and the static archives in link order.
function(toolchain_library name root)
  add_library(toolchain::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(toolchain::${name} SYSTEM INTERFACE ${root}/include)
  list(TRANSFORM ARGN REPLACE "(.+)" "${root}/lib/lib\\1.a" OUTPUT_VARIABLE archives)
  target_link_libraries(toolchain::${name} INTERFACE ${archives})
endfunction()

toolchain_library(glslang ${shader_root} glslang glslang-default-resource-limits)
target_link_libraries(toolchain::glslang INTERFACE stdc++ Threads::Threads m)
toolchain_library(spirv_tools ${shader_root} SPIRV-Tools-opt SPIRV-Tools)
target_link_libraries(toolchain::spirv_tools INTERFACE stdc++ m)
toolchain_library(quickjs ${MOEC_TOOLCHAIN} quickjs)
target_link_libraries(toolchain::quickjs INTERFACE Threads::Threads m)

find_library(VULKAN_LOADER NAMES libvulkan.so.1 REQUIRED)
toolchain_library(vulkan ${shader_root})
target_link_libraries(toolchain::vulkan INTERFACE ${VULKAN_LOADER})

# The chat template engine's script, for moe_embed().
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/cmake/jinja.sh --path OUTPUT_VARIABLE JINJA_JS
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS ${JINJA_JS})
  message(FATAL_ERROR "the chat template engine is not bundled (${JINJA_JS}): run ./build.sh once")
endif()
