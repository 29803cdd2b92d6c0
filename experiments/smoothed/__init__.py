"""The smoothed wing: audits of mechanisms without noise, and the figures of LWX23."""
