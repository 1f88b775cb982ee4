// Functions that bind parts of the Python module, and shared helpers that decode programs and translate
// exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.h"
#include "fabric/fabric.h"
#include "packet/settings.h"
#include "simulation/simulation.h"
#include "workload/loading.h"
#include "workload/program.h"

namespace chakrascope::engine {

namespace nb = nanobind;

// Bind the analyses of results, emulated ranks with their transports, the fabric models, and the GPU
// model.
void bind_analysis(nb::module_& module);
void bind_emulation(nb::module_& module);
void bind_fabric(nb::module_& module);
void bind_gpu(nb::module_& module);

// Read a fabric, or its packet settings, from a Python object.
Fabric fabric_of(nb::handle given);
packet::Settings packet_settings_of(nb::handle fabric);

// Decode a name from a file into a Python string; bytes that are not valid UTF-8 are replaced.
inline nb::object to_text(const std::string& bytes) {
    const auto size = static_cast<Py_ssize_t>(bytes.size());
    return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), size, "replace"));
}

inline std::vector<ProgramSource> sources_of(const nb::list& sources) {
    std::vector<ProgramSource> found;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        if (nb::isinstance<nb::bytes>(sources[i])) {
            const auto bytes = nb::cast<nb::bytes>(sources[i]);
            found.push_back({"program " + std::to_string(i), {bytes.c_str(), bytes.size()}});
        } else {
            found.push_back({nb::cast<std::string>(nb::str(sources[i])), {}, true});
        }
    }
    return found;
}

// Decode the programs. Programs with equal contents are decoded only once. `progress` is called
// regularly during decoding.
inline std::vector<std::shared_ptr<const Program>> load_programs(const nb::list& sources,
                                                                 const Progress& progress = {}) {
    const std::vector<ProgramSource> found = sources_of(sources);
    const nb::gil_scoped_release release;
    return decode_programs(found, [&progress] {
        if (progress && !progress(0, 0)) throw Cancelled("The simulation was cancelled.");
    });
}

// Raise the exception class with this name from the Python package's errors.
inline void raise_named(const nb::object& classes, const char* name, const std::exception& error) {
    PyErr_SetObject(nb::object(classes.attr(name)).ptr(), to_text(error.what()).ptr());
}

// Run a function of the engine, and translate its C++ exceptions into exceptions of the Python package.
template <class Function>
auto translated(const nb::object& errors, Function function) {
    try {
        return function();
    } catch (const ConfigError& error) {
        raise_named(errors, "ConfigError", error);
    } catch (const WorkloadFormatError& error) {
        raise_named(errors, "WorkloadFormatError", error);
    } catch (const DependencyError& error) {
        raise_named(errors, "DependencyError", error);
    } catch (const BackendError& error) {
        raise_named(errors, "BackendError", error);
    } catch (const Cancelled& error) {
        raise_named(errors, "Cancelled", error);
    }
    throw nb::python_error();
}

// Call the Python callback at most ten times a second, so that progress reports take almost no time.
// Before each call, check for signals such as SIGINT.
inline std::function<bool(std::int64_t, std::int32_t)> throttle(const nb::object& callback) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds interval{100};
    return [callback, interval, next = Clock::now() + interval](std::int64_t now,
                                                                std::int32_t finished) mutable {
        if (Clock::now() < next) return true;
        next = Clock::now() + interval;
        const nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        return callback.is_none() || nb::cast<bool>(callback(now, finished));
    };
}

}  // namespace chakrascope::engine
