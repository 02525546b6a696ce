// What owns a precompiled header needs a source (tests/CMakeLists.txt).
