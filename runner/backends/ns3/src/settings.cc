// SPDX-License-Identifier: GPL-2.0-only
#include "settings.h"

#include <functional>
#include <sstream>

namespace chakrascope::packet {
namespace {

using Setter = std::function<void(Settings&, const std::string&)>;

template <class T>
Setter plain(T Settings::*member) {
    return [member](Settings& settings, const std::string& value) {
        settings.*member = static_cast<T>(std::stod(value));
    };
}

Setter duration(Ticks Settings::*member, double unit) {
    return [member, unit](Settings& settings, const std::string& value) {
        settings.*member = static_cast<Ticks>(std::stod(value) * unit);
    };
}

Setter table(std::map<std::uint64_t, double> Settings::*member) {
    return [member](Settings& settings, const std::string& value) {
        std::istringstream words(value);
        std::uint64_t rate = 0;
        double entry = 0;
        words >> rate >> entry;
        (settings.*member)[rate] = entry;
    };
}

const std::map<std::string, Setter>& setters() {
    constexpr double microsecond = 1e6;
    static const std::map<std::string, Setter> all{
        {"ACK_HIGH_PRIO", plain(&Settings::ack_high_priority)},
        {"ALPHA_RESUME_INTERVAL", duration(&Settings::alpha_interval, microsecond)},
        {"BUFFER_SIZE", [](Settings& s, const std::string& v) { s.buffer_bytes = std::stoull(v) << 20; }},
        {"CC_MODE",
         [](Settings& s, const std::string& v) { s.control = static_cast<Control>(std::stoi(v)); }},
        {"CLAMP_TARGET_RATE", plain(&Settings::clamp_target)},
        {"DCTCP_RATE_AI", plain(&Settings::dctcp_additive_bps)},
        {"ENABLE_QCN", plain(&Settings::mark)},
        {"EWMA_GAIN", plain(&Settings::gain)},
        {"FAST_REACT", plain(&Settings::fast_react)},
        {"FAST_RECOVERY_TIMES", plain(&Settings::fast_recovery_times)},
        {"GLOBAL_T", plain(&Settings::global_window)},
        {"HAS_WIN", plain(&Settings::window)},
        {"HEADROOM_FACTOR", plain(&Settings::headroom_factor)},
        {"INT_MULTI", plain(&Settings::telemetry_scale)},
        {"KMAX_MAP", table(&Settings::mark_high_kb)},
        {"KMIN_MAP", table(&Settings::mark_low_kb)},
        {"L2_ACK_INTERVAL", plain(&Settings::ack_interval_bytes)},
        {"L2_BACK_TO_ZERO", plain(&Settings::back_to_zero)},
        {"L2_CHUNK_SIZE", plain(&Settings::chunk_bytes)},
        {"MI_THRESH", plain(&Settings::stages)},
        {"MIN_RATE", plain(&Settings::minimum_bps)},
        {"MULTI_RATE", plain(&Settings::rate_per_hop)},
        {"PACKET_PAYLOAD_SIZE", plain(&Settings::payload_bytes)},
        {"PINT_LOG_BASE", plain(&Settings::pint_base)},
        {"PINT_PROB", plain(&Settings::pint_probability)},
        {"PMAX_MAP", table(&Settings::mark_probability)},
        {"RATE_AI", plain(&Settings::additive_bps)},
        {"RATE_BOUND", plain(&Settings::rate_bound)},
        {"RATE_DECREASE_INTERVAL", duration(&Settings::decrease_interval, microsecond)},
        {"RATE_HAI", plain(&Settings::hyper_bps)},
        {"RETRANSMIT_TIMEOUT", duration(&Settings::retransmit_timeout, microsecond)},
        {"RP_TIMER", duration(&Settings::increase_interval, microsecond)},
        {"SAMPLE_FEEDBACK", plain(&Settings::skip_empty_queues)},
        {"SEED", plain(&Settings::seed)},
        {"TIME_STEP_PS", plain(&Settings::time_step)},
        {"U_TARGET", plain(&Settings::target_utilisation)},
        {"VAR_WIN", plain(&Settings::variable_window)},
    };
    return all;
}

}  // namespace

bool Settings::set(const std::string& name, const std::string& value) {
    const auto found = setters().find(name);
    if (found == setters().end()) return false;
    found->second(*this, value);
    return true;
}

std::uint32_t Settings::telemetry_bytes() const {
    switch (control) {
        case Control::Hpcc:
            return 42;
        case Control::Timely:
            return 8;
        case Control::HpccPint:
            return 2;
        default:
            return 0;
    }
}

Ticks Settings::transmission(std::uint64_t bytes, std::uint64_t bits_per_second) const {
    const auto wide = static_cast<unsigned __int128>(bytes) * 8 * 1'000'000'000'000ull;
    const auto step = static_cast<unsigned __int128>(bits_per_second) * static_cast<std::uint64_t>(time_step);
    const auto sum = wide + step / 2;
    constexpr std::uint64_t largest = ~0ull;
    // Dividing 128 bits is slow, and packets on usual links do not need it.
    if (sum <= largest && step <= largest)
        return static_cast<Ticks>(static_cast<std::uint64_t>(sum) / static_cast<std::uint64_t>(step)) *
               time_step;
    return static_cast<Ticks>(sum / step) * time_step;
}

}  // namespace chakrascope::packet
