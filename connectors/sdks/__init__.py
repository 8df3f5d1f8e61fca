"""What agent SDKs keep of their conversations: messages in the words of each SDK."""
